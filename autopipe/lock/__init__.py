"""The lock: a checked-in file of all inputs that determine the bytes of a build."""
