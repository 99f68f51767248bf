"""Backends: the kinds of target hardware. Each is a class in its own file."""

from collections.abc import Mapping
from typing import Final

from autopipe.backends.backend import Backend
from autopipe.backends.cpu import CPU
from autopipe.backends.cuda import CUDA

_ALL: Final = (
    CPU,
    CUDA,
)

BACKENDS: Final[Mapping[str, Backend]] = {backend.kind: backend for backend in _ALL}
"""All backends, by TVM's target kind; the first is the default."""

DEVICES: Final[Mapping[str, Backend]] = {backend.device: backend for backend in _ALL}
"""All backends, by TVM's name of the device."""


def find_backend(facts: Mapping[str, object]) -> Backend:
    """Return the backend of a target, resolved or not: its facts have a `kind`."""
    return BACKENDS[str(facts["kind"])]
