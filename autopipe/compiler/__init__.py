"""The compiler, on TVM: frontends, graph passes, tasks, building a library and running it."""
