"""What happens during a run, told to people and programs. Nothing else prints during a run."""
