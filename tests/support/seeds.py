"""Seeds of long random tests; the variables FUZZ_FIRST and FUZZ_LAST give others."""

import os


def fuzz_seeds(first, last):
    """Return the seeds of a long random test, by default from `first` to before `last`."""
    return range(int(os.environ.get("FUZZ_FIRST", first)), int(os.environ.get("FUZZ_LAST", last)))


def split_seeds(seeds, size):
    """Return the seeds in runs of `size`, one for each test."""
    return [seeds[at : at + size] for at in range(0, len(seeds), size)]
