"""Spends the budget: from tasks to the best record of each."""
