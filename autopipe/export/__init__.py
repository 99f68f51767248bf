"""Writes a package as a folder that runs where nothing else is installed."""
