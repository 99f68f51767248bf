"""The compiled library: how it is built, linked, loaded and called."""
