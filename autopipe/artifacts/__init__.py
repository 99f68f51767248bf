"""The documents that stages leave, as types: who writes one and who reads it use the same."""
