"""Detached signatures of packages and locks, created and verified by OpenSSH."""
