"""Find the first kernel of a build that computes a wrong result."""
