"""Facts derived from a graph: size hints, promises, moments of weights."""
