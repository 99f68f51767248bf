"""Schedule templates, one file an op family: what it is for, its knobs, and the schedule."""
