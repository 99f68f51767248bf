"""Where the time of a built model goes: by kernel, by builtin, and by node of its ONNX file."""
