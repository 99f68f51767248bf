"""ONNX operators whose results are as long as values say: what is found is counted first."""
