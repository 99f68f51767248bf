"""After the search: the comparison inside the model, and repeats where that cannot run."""
