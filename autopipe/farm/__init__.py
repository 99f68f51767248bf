"""Tuning on many machines: a scheduler assigns the trials of runs to workers."""
