"""Loops and indices of PrimFuncs: what they read, how they divide, and copies of them."""
