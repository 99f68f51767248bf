"""The graph level, on TVM: import, passes, tasks, build, run time."""
