"""What the templates read out of loops."""
