"""Gradients of tensor expressions by reverse accumulation, and of Relax functions."""
