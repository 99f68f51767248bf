"""Rewrites of the graph, before and while it is lowered."""
