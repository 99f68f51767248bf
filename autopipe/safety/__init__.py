"""Risky work on a task: done in a child, remembered where it failed, checked where it succeeded."""
