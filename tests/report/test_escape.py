import time
from itertools import product

import pytest

from autopipe.report.escape import escape_lines, escape_text
from tests.support.table import each_row


@pytest.mark.fault("E13")
@each_row(
    "text, shown",
    [
        ("conv1/7x7_s2", "conv1/7x7_s2"),
        ("モデル", "モデル"),
        ("\x1b[31mred\x1b[0m", r"\x1b[31mred\x1b[0m"),
        ("over\rwrite", r"over\rwrite"),
        ("two\nlines", r"two\nlines"),
        ("abc\u202edef", r"abc\u202edef"),
        ("isolate\u2066", r"isolate\u2066"),
        ("\x9b31m", r"\x9b31m"),
        ("nul\0", r"nul\x00"),
        ("line\u2028separator", r"line\u2028separator"),
        ("half\ud800", r"half\ud800"),
        ("", ""),
    ],
)
def test_only_what_prints_is_shown(text, shown):
    assert escape_text(text) == shown
    assert shown.isprintable()


@pytest.mark.fault("E13")
def test_a_long_text_keeps_its_head_and_its_tail():
    assert escape_text("a" * 50 + "b" * 50, limit=21) == "a" * 9 + "..." + "b" * 9


@each_row(
    "limit, text",
    product([1, 3, 10, 11, 200], ["x" * 1000, "\x1b" * 1000, "\x1b" * 100, "x" * 201]),
)
def test_the_limit_holds_after_escaping_too(text, limit):
    assert len(escape_text(text, limit)) == limit


def test_a_text_of_just_the_limit_is_whole():
    assert escape_text("x" * 200) == "x" * 200


@pytest.mark.fault("E13")
def test_a_megabyte_takes_no_time():
    start = time.process_time()
    escape_text("\x1b" * 1_000_000)
    assert time.process_time() - start < 0.1


def test_the_lines_of_a_message_stay_lines():
    assert escape_lines("a\n\x1b[2J\nb") == "a\n\\x1b[2J\nb"
