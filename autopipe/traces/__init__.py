"""Traces of schedules as data: checks what they hold, and describes them in words. Needs no TVM."""
