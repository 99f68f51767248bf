"""What a type hint says, which TVM asks for each argument of a schedule's primitives.

TVM takes the hint apart each time, which is a good part of what a primitive costs where a template
or a trace applies hundreds of them. Here it remembers the parts. Nothing is checked less.
"""

from functools import cache

from tvm.s_tir.schedule import _type_checker


def remember() -> None:
    """Have TVM take each type hint apart once in this process. Only speed depends on it."""
    taken_apart = getattr(_type_checker, "_dispatcher", None)
    if taken_apart is not None and not hasattr(taken_apart, "cache_info"):
        setattr(_type_checker, "_dispatcher", cache(taken_apart))  # noqa: B010 - TVM's own name
