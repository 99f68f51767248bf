"""Locks are told from pipeline files by how they begin."""

from autopipe.lock.recognize import is_lock
from autopipe.lock.text import format_lock
from tests.lock.examples import LOCK
from tests.support.table import each_row


@each_row(
    "text, known",
    [
        (format_lock(LOCK), True),
        (format_lock(LOCK).replace("version: 1\n", "version: 2\n", 1), True),
        (format_lock(LOCK)[:120], True),
        ("<<<<<<< HEAD\n" + format_lock(LOCK), True),
        ("# edited\n" + format_lock(LOCK), True),
        (format_lock(LOCK).replace("version: 1\n", "<<<<<<< ours\nversion: 1\n", 1), True),
        ("version: 1\nname: demo\n", False),
        ("# yaml-language-server\nversion: 1\nname: demo\n", False),
        ("", False),
        ("{}", False),
    ],
)
def test_a_lock_is_known_by_how_it_begins(text, known):
    assert is_lock(text.encode()) is known
