"""What is told to the user, and how."""
