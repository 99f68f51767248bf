"""What changed between two builds: of two locks, packages or run reports."""
