"""Tuners of engine `autotvm`."""
