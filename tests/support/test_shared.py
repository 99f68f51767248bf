"""What is built once: by whoever asks first, and again only where that failed."""

import pytest

from tests.support import shared


def test_it_is_made_once(tmp_path_factory):
    made = []

    def make(folder):
        made.append(folder)
        (folder / "text").touch()

    first = shared.once(tmp_path_factory, "made-once", make)
    assert shared.once(tmp_path_factory, "made-once", make) == first
    assert made == [first]
    assert (first / "text").exists()


def test_a_failure_is_nobody_elses(tmp_path_factory):
    def fail(folder):
        raise OSError("no")

    with pytest.raises(OSError, match="no"):
        shared.once(tmp_path_factory, "failing", fail)
    assert shared.once(tmp_path_factory, "failing", lambda _: None).is_dir()
