"""Control flow of ONNX: If, Loop and Scan."""
