"""The lock: what decides the bytes of a build, written down and checked in."""
