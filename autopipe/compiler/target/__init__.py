"""The hardware that is compiled for."""
