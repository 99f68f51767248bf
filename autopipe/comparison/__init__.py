"""Compare two builds: locks, packages or run reports."""
