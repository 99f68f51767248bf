"""Traces of schedules as data: validation, and description as text. Needs no TVM."""
