"""What tests read from the loops of a function."""

import re


def extents(script):
    """Return the extents of all loops of a function, in the order they are written in."""
    loops = re.findall(r"(?:range|T\.(?:parallel|unroll|vectorized|grid))\(([\d, ]+)\)", script)
    return [int(extent) for loop in loops for extent in loop.split(",")]
