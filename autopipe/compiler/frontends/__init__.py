"""The frontends: one package for each model format."""
