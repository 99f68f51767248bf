"""Packages: written reproducibly, opened safely."""
