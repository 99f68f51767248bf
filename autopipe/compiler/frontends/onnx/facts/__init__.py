"""What a graph says of its model: hints of sizes, promises, moments of weights."""
