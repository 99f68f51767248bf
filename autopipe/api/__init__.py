"""What a user asks for, as functions: what the command line and Python call."""
