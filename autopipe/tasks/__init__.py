"""Tasks, and the filters that select those to tune."""
