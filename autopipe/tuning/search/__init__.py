"""Spending the budget: which schedules of which tasks are proposed and measured."""
