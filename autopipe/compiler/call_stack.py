"""Keeps TVM's decorators from reading the source of every caller: 0.1 s for each function.

`T.prim_func` and `R.function` call `inspect.stack`. They look at it only where a function stands in
a Python class or has annotations that are strings, which is so in nothing that autopipe parses.
"""

import inspect
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def unread() -> Iterator[None]:
    """Have `inspect.stack` return no frame while TVMScript is parsed; for a single thread."""
    stack = inspect.stack
    inspect.stack = _nobody
    try:
        yield
    finally:
        inspect.stack = stack


def _nobody(context: int = 1) -> list[inspect.FrameInfo]:  # noqa: ARG001 - as `inspect.stack`
    return []
