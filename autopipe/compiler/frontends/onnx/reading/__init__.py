"""Read an ONNX file into a checked graph: gate, tensors, shapes, supported operators."""
