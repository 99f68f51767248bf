"""Which ops become one function."""
