"""The content-addressed store: results by key, verified on read. It knows no stage."""
