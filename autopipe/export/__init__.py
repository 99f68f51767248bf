"""Export of a package to a self-contained folder."""
