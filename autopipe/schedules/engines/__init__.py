"""Engines: sources of schedules, one file each, and the chain of fallbacks."""
