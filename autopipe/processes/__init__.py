"""Child processes: start, resource limits, messages, failures, end."""
