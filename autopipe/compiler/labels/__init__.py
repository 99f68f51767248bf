"""Metadata of kernels: the ops that they compute, and the nodes of the model."""
