"""Sizes that are open until the model runs, or that it computes."""
