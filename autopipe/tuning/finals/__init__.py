"""After the search: repeated measurements, and the comparison inside the model."""
