"""The content-addressed store: results by key, verified on read, independent of stages."""
