"""Remotes: shared storage of results and tuning records, which is not trusted."""
