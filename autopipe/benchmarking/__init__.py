"""Times a build and what a user would run otherwise, each alone on the machine."""
