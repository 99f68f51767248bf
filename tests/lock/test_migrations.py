"""Locks of earlier releases, with a step from a version that never was."""

from hashlib import sha256
from pathlib import Path

import pytest

from autopipe.errors import LockError
from autopipe.lock.document import Lock
from autopipe.lock.migrations import STEPS, upgrade
from autopipe.lock.recognize import is_lock
from autopipe.lock.text import parse, write
from tests.lock.examples import LOCK
from tests.support.table import each_row

FILE = Path("demo.lock")
ADD = {0: lambda document: {**document, "stages": {"import": 3, "tune": 3}}}


def sealed(body: str) -> str:
    return f"{body}# sha256: {sha256(body.encode()).hexdigest()}\n"


def older(lock: Lock = LOCK) -> str:
    """A lock of a version 0, which did not have `stages`."""
    body = write(lock).rpartition("# sha256")[0]
    lines = body.replace("version: 1\n", "version: 0\n", 1).splitlines(keepends=True)
    at = lines.index("stages:\n")
    return sealed("".join(lines[:at] + lines[at + 1 + len(lock.stages) :]))


def test_every_version_that_was_has_a_step_to_the_next():
    assert STEPS.keys() == set(range(1, LOCK.version))


def test_steps_are_taken_in_order():
    steps = {1: lambda d: {**d, "a": d["a"] + 1}, 2: lambda d: {**d, "a": d["a"] * 10}}
    assert upgrade({"version": 1, "a": 1}, steps) == {"version": 3, "a": 20}
    assert upgrade({"version": 2, "a": 1}, steps) == {"version": 3, "a": 10}
    for version in (3, 7, "1", [1], None, True):
        assert upgrade({"version": version}, steps) == {"version": version}


def test_an_older_lock_is_brought_up_to_date():
    assert parse(older(), FILE, ADD) == LOCK


def test_without_a_step_it_is_refused_with_its_line():
    with pytest.raises(LockError, match=r"demo\.lock:2: version 0"):
        parse(older(), FILE)


def test_an_older_lock_that_was_edited_is_refused_before_any_step():
    text = older().replace("calls: 2", "calls: 3")
    with pytest.raises(LockError, match="edited or merged"):
        parse(text, FILE, {0: lambda _: pytest.fail("a step ran")})


@pytest.mark.parametrize("version", ['"0"', "[0]", "null", "0.0", "false"])
def test_odd_versions_take_no_step(version):
    text = sealed(older().rpartition("# sha256")[0].replace("version: 0", f"version: {version}"))
    with pytest.raises(LockError):
        parse(text, FILE, ADD)


@each_row(
    "text, known",
    [
        (write(LOCK), True),
        (older(), True),
        (write(LOCK)[:120], True),
        ("<<<<<<< HEAD\n" + write(LOCK), True),
        ("# edited\n" + write(LOCK), True),
        (write(LOCK).replace("version: 1\n", "<<<<<<< ours\nversion: 1\n", 1), True),
        ("version: 1\nname: demo\n", False),
        ("# yaml-language-server\nversion: 1\nname: demo\n", False),
        ("", False),
        ("{}", False),
    ],
)
def test_a_lock_is_known_by_how_it_begins(text, known):
    assert is_lock(text.encode()) is known
