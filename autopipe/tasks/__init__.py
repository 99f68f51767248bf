"""What a task is, and which ones are tuned."""
