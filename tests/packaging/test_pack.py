"""The progress of writing a package."""

from autopipe.compiler.step_counter import count_with
from autopipe.host import copy_file
from tests.packaging import packages


def test_packed_bytes_are_counted_while_they_are_hashed_and_written(tmp_path, monkeypatch):
    counts = []

    def begin(message, total, *, is_even):
        assert (message, is_even) == ("MiB packed", True)
        counts.append([total])
        return counts[-1].append

    monkeypatch.setattr(copy_file, "MIB", 1)
    with count_with(begin):
        packages.make(tmp_path)
    total, *steps = counts[0]
    assert total == sum(map(len, packages.CONTENTS.values()))
    assert steps == sorted(steps)
    assert steps[-1] >= total  # and those of the component list and the manifest
