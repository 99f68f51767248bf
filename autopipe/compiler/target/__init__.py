"""The target: the hardware that a model is compiled for."""
