"""The pipeline file: one frozen model a section, each in a module of its own."""
