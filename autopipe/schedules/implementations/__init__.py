"""Implementations: alternative algorithms for a function, instead of the loops it was lowered to.

`winograd` rewrites 3x3 convolutions (`filtering` has the algorithm); `library` calls a library
(`dispatch` selects the library of an op, `library_call` writes the call). `implementation` defines
the protocol of an implementation, and lists the allowed ones.
"""

from typing import Final

from autopipe import extensions
from autopipe.schedules.implementations.implementation import DIRECT, Implementation
from autopipe.schedules.implementations.winograd import winograd2, winograd4, winograd6

IMPLEMENTATIONS: Final[tuple[Implementation, ...]] = (winograd2, winograd4, winograd6)
"""The built-in implementations of the protocol `Implementation`."""


def load_implementations() -> tuple[Implementation, ...]:
    """Return the implementations of extensions, then the built-in ones.

    Raises SetupError if an extension is broken.
    """
    built_in_names = {DIRECT, *(implementation.NAME for implementation in IMPLEMENTATIONS)}
    extensions_by_name = extensions.list_registered(extensions.IMPLEMENTATIONS, built_in_names)
    return (*(extension.load() for extension in extensions_by_name.values()), *IMPLEMENTATIONS)
