"""Tuning on many machines: a scheduler hands trials of runs to workers, which make them."""
