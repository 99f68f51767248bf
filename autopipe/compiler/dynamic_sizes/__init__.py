"""Models and kernels of dynamic sizes, and the same at certain sizes."""
