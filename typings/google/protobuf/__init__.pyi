"""Types of what the stubs of onnx take from protobuf, whose package has none."""
