"""Traces of schedules as data: what one may hold, and what it does in words. Needs no TVM."""
