"""The pipeline file: one frozen model per section, each in a module of its own."""
