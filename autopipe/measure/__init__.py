"""Who builds and times a candidate."""
