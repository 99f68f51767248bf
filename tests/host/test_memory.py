"""Freed memory of the C library."""

import subprocess
import sys

import pytest

_COUNT = """
import resource, sys
import numpy as np
from autopipe.host.memory import keep_freed_memory

def write_arrays():  # of 3 MiB each: numpy asks for huge pages from 4 MiB on
    arrays = [np.empty(3 << 20, np.uint8) for _ in range(40)]
    for array in arrays:
        array.fill(1)

if sys.argv[1] == "keep":
    keep_freed_memory()
write_arrays()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(5):
    write_arrays()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""
"""Prints the page faults of arrays that are written, and all freed at once."""


@pytest.fixture
def count_page_faults():
    """Count in a new process: thresholds of this one have grown with what it freed."""

    def count(mode: str) -> int:
        command = [sys.executable, "-c", _COUNT, mode]
        return int(subprocess.run(command, capture_output=True, text=True, check=True).stdout)

    return count


def test_keep_freed_memory_reuses_the_pages_of_arrays(count_page_faults):
    """Large arrays are not mapped anew each time."""
    assert count_page_faults("keep") < count_page_faults("return") / 4
