"""Rewrites of a checked ONNX graph into one that converts well, as a list of passes."""
