"""Semantics-preserving rewrites of an ONNX graph, each with its proof."""
