"""Reporters: print the events of a run for users and programs. Nothing else prints during a run."""
