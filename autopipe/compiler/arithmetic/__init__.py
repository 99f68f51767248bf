"""Arithmetic of elements where TVM's own is wrong, slow or undefined."""
