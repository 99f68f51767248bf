"""Detached signatures of packages and locks, made and checked by OpenSSH."""
