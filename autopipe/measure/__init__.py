"""Build and time candidates, on this machine or on a device."""
