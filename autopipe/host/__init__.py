"""Resources of this machine, and errors of its operating system."""
