"""The generic runner: it knows stages, keys and artifacts, and nothing of TVM."""
