"""The lock: a checked-in file of everything that determines the bytes of a build."""
