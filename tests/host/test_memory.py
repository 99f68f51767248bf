"""Freed memory of the C library."""

import resource

import numpy as np

from autopipe.host.memory import keep_freed_memory
from autopipe.processes.contained import Child

_BYTES = 3 << 20
"""Of an array: numpy asks for huge pages from 4 MiB on."""

_ARRAYS = 40
_ROUNDS = 5


def _count_page_faults(*, keep: bool) -> int:
    """Count the page faults of arrays that are written, and all freed at once."""

    def work(_: object) -> int:
        if keep:
            keep_freed_memory()
        _write_arrays()
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        for _ in range(_ROUNDS):
            _write_arrays()
        return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

    with Child(lambda: work) as child:
        return int(child.ask())


def _write_arrays() -> None:
    arrays = [np.empty(_BYTES, np.uint8) for _ in range(_ARRAYS)]
    for array in arrays:
        array.fill(1)


def test_keep_freed_memory_reuses_the_pages_of_arrays() -> None:
    """Large arrays are not mapped anew each time."""
    assert _count_page_faults(keep=True) < _count_page_faults(keep=False) / 4
