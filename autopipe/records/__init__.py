"""Tuning records: the durable store, and their text form."""
