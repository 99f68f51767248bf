"""Verification: the outputs of a build against those of a reference runtime."""
