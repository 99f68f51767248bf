"""The ONNX frontend: the gate for untrusted files, weights, clean-up, conversion to Relax."""
