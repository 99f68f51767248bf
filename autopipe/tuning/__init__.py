"""Tuning: from tasks to the best record of each, within a budget."""
