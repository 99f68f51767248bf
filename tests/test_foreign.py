"""What another wrote is read within bounds."""

import json
import os
from pathlib import Path

import pytest

from autopipe import foreign
from tests.support.table import each_row


@pytest.mark.fault("K1")
@each_row(
    "text, said",
    [("NaN", "no number"), ("[-Infinity]", "no number"), ("1e999", "too large"),
     ("1" + "0" * 400, "100 digits"), ("9" * 5000, "100 digits"),
     ('{"a": {"b": 1, "b": 2}}', "twice"), ("[" * 65 + "]" * 65, "too deeply"),
     ("[" * 100_000, "too deeply"), (r'"\ud800"', "half"), (r'{"\udfff": 1}', "half"),
     (b'"\xff"', "UTF-8"), ('"\udc80"', "half"), ("[" + "1," * 600_000 + "1]", "more values"),
     ('"\u2028"', "U\\+2028 is not shown"), ('"a\u202eb"', "U\\+202E"), ('"\x85"', "U\\+0085"),
     ("{}x", "Extra data"), ("", "Expecting value"), ('"secret', "Unterminated")],
)  # fmt: skip
def test_what_two_readers_could_take_differently_is_refused(text, said):
    with pytest.raises(foreign.MalformedError, match=said) as caught:
        foreign.parse(text)
    assert "secret" not in str(caught.value)


def test_what_is_right_is_read():
    assert foreign.parse(json.dumps({"\u2028": "\u202e"})) == {"\u2028": "\u202e"}
    value = {"a": [1, -2.5e-7, 123456789012345678901234567890], "b": "\U0001f600\u00e9", "c": {}}
    assert foreign.parse(json.dumps(value)) == value
    assert foreign.parse(json.dumps(value, ensure_ascii=False).encode()) == value
    assert foreign.parse("[" * 64 + "]" * 64)
    assert foreign.parse_object(b"{}") == {}
    with pytest.raises(foreign.MalformedError):
        foreign.parse_object("[]")


@pytest.mark.fault("K6")
def test_a_file_that_never_ends_or_has_to_be_waited_for_is_not_read(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to("/dev/zero")
    for path in (tmp_path / "pipe", tmp_path / "link", Path("/dev/zero"), tmp_path):
        with pytest.raises(OSError, match=r"not a regular file|Is a directory"):
            foreign.read(path, 10)
    with pytest.raises(OSError, match="null"):
        foreign.read(Path("a\0b"), 10)
    (tmp_path / "large").write_bytes(bytes(11))
    with pytest.raises(OSError, match="larger than"):
        foreign.read(tmp_path / "large", 10)
    assert foreign.read(tmp_path / "large", 11) == bytes(11)


def test_a_line_that_is_too_long_costs_itself(tmp_path):
    path = tmp_path / "lines"
    path.write_bytes(b"a\n" + b"b" * 100 + b"\nccc\n\n" + b"d" * 5)
    with path.open("rb") as file:
        assert list(foreign.read_lines(file, 4)) == [b"a", None, b"ccc", b"", None]
