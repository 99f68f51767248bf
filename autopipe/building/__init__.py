"""The build: the choice of a schedule for each task, and the library of all."""
