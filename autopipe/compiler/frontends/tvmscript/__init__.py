"""Models written in TVMScript: Relax functions and PrimFuncs in Python's syntax."""
