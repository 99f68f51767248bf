"""Loops and indices of PrimFuncs: reads, divisions, domains and copies."""
