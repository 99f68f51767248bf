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
    built_in_names = {DIRECT, *(implementation.NAME for implementation in IMPLEMENTATIONS)}
    extensions_by_name = extensions.list_registered(extensions.IMPLEMENTATIONS, built_in_names)
    return (*(extension.load() for extension in extensions_by_name.values()), *IMPLEMENTATIONS)
