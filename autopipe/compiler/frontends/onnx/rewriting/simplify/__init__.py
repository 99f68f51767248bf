"""Rewrites of an ONNX graph that keep what it computes, each with its proof."""
