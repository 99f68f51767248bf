"""Risky work on tasks: run in child processes, failures recorded, schedules checked."""
