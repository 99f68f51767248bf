"""Tuners of engine `autotvm`, one file each."""
