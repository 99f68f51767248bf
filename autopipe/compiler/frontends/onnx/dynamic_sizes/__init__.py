"""Dynamic shapes: sizes known at run time, and data-dependent sizes."""
