"""Whole powers as products: an implementation, a template that schedules it, and an engine."""
