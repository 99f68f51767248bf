"""Report the events of a run to people and programs. Nothing else prints during a run."""
