"""What this machine has, and what its system refuses."""
