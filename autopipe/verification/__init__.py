"""Compares what a build computes with what a reference runtime computes."""
