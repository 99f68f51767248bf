"""The file that is shipped: packed so that it is always the same, opened so that it is safe."""
