"""Long writes of files that are mapped later."""

import io
from contextlib import suppress

import pytest

from autopipe.host.copy_file import STRETCH, LongWriter


class Recorded(io.BytesIO):
    """Keeps the lengths of writes, and what was written."""

    def __init__(self):
        super().__init__()
        self.lengths = []
        self.written = b""

    def write(self, data):
        self.lengths.append(len(data))
        self.written += bytes(data)
        return len(data)


def refuse(_):
    raise OSError("no space")


@pytest.mark.parametrize(
    "parts", [[3], [STRETCH], [5, STRETCH - 6, 7, 3 * STRETCH + 1], [STRETCH // 3] * 10, []]
)
def test_all_writes_but_the_last_are_a_stretch(parts):
    out = Recorded()
    data = [bytes([at]) * size for at, size in enumerate(parts)]
    with LongWriter(out) as writer:
        for part in data:
            writer.write(part)
    assert out.written == b"".join(data)
    assert all(length == STRETCH for length in out.lengths[:-1])
    assert out.closed


def test_what_waits_is_not_written_after_an_error():
    out = Recorded()
    with suppress(ValueError), LongWriter(out) as writer:
        writer.write(b"begun")
        raise ValueError("damaged")
    assert (out.written, out.closed) == (b"", True)


def test_a_full_disk_closes_the_file(monkeypatch):
    out = Recorded()
    monkeypatch.setattr(out, "write", refuse)
    with pytest.raises(OSError, match="no space"), LongWriter(out) as writer:
        writer.write(b"begun")
    assert out.closed
