"""Implementations: other ways to compute a function than the loops it was lowered to.

`winograd` rewrites 3x3 convolutions (`filtering` has the algorithm); `library` calls a library
(`dispatch` says which one takes an op, `library_call` writes the call). `implementation` says what
an implementation has to define, and lists those that may be used.
"""

from typing import Final

from autopipe import extensions
from autopipe.schedules.implementations.implementation import DIRECT, Implementation
from autopipe.schedules.implementations.winograd import winograd2, winograd4, winograd6

IMPLEMENTATIONS: Final[tuple[Implementation, ...]] = (winograd2, winograd4, winograd6)
"""Our implementations; each defines what the protocol `Implementation` says."""


def load_implementations() -> tuple[Implementation, ...]:
    """Return the implementations of other packages, then ours.

    Raises SetupError if an extension is broken.
    """
    own = {DIRECT, *(implementation.NAME for implementation in IMPLEMENTATIONS)}
    registered = extensions.list_registered(extensions.IMPLEMENTATIONS, own)
    return (*(extension.load() for extension in registered.values()), *IMPLEMENTATIONS)
