"""Passes over the graph of a model, one a file. `compiler/pass_lists.py` holds their order."""
