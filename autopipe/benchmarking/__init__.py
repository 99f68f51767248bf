"""Benchmarks of a build against reference runtimes, one at a time per machine."""
