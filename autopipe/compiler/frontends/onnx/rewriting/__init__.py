"""From a checked graph to one that converts well: a list of passes."""
