"""From a file to a checked graph: gate, tensors, shapes, and what may be imported."""
