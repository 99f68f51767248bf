"""Models and kernels with dynamic shapes, and their specialization for static sizes."""
