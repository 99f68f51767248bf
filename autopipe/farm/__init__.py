"""Tuning on many machines: Dask carries trials to workers, a bench of ours on each makes them."""
