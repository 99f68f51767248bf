"""Which kernel of a build is the first that computes something else than it should."""
