"""Profiles of a built model by kernel, by builtin, and by node of its ONNX file."""
