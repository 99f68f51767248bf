"""Passes over the graph of a model, one per file; `compiler/pass_lists.py` holds their order."""
