"""Which schedule each task is built with, and the library that they become."""
