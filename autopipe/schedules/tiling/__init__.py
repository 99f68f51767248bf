"""Tiles of sums of products: recognising them, the knobs, and the loops they make."""
