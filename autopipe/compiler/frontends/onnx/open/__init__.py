"""Models whose sizes are open: numbers that follow from the sizes, and converters for them."""
