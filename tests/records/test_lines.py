"""Records as text."""

import json
import math

import pytest

from autopipe.records import lines
from autopipe.records.about import WorkloadInfo
from autopipe.records.lines import Bad, select_winners, write
from autopipe.records.store import RecordDetails
from tests.records.written import HERE, record

ABOUT = WorkloadInfo(("nn.conv2d",), ("float32[1,2]",), ("float32[3]",), 7.0, "abc")


def found(seconds=(1.0,), *, wrong=None, identity="1d", about=ABOUT, here=HERE, **fields):
    return RecordDetails(0, record(seconds, **fields), here, identity, about, wrong)


def read(text):
    """Return the records of a text, and what of it is none."""
    every = list(lines.read(line.encode() for line in text.split("\n")))
    bad = [each for each in every if isinstance(each, Bad)]
    return [each for each in every if each not in bad], bad


EVERY = [
    found((1.5, 2.0), wrong="off by 1"),
    found((), workload="00aa", about=None),
    found((math.nan, math.inf), schedule="[[],\n []]", session="\x00é"),
    found(here=HERE._replace(target="no JSON", device='{"b": 1}')),
]


def test_what_is_written_is_read_again():
    again, bad = read(write(EVERY))
    assert bad == []
    assert sorted(map(repr, again)) == sorted(map(repr, EVERY))


def test_equal_records_are_equal_bytes_and_lines_sorted_by_workload():
    text = write(EVERY)
    assert write(reversed(EVERY)) == text
    assert text.endswith("\n")
    first, *_ = text.splitlines()
    assert len(text.splitlines()) == len(EVERY)
    content = json.loads(first)
    assert content["workload"] == "00aa"
    assert content["target"] == {"kind": "llvm"}
    assert first == json.dumps(content, sort_keys=True, separators=(",", ":"))


@pytest.mark.fault("D4", "G11")
@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"seconds":[1.5', '"seconds":[0.5'), ('"wrong":"off by 1"', '"wrong":null'),
        ('"checksum"', '"check"'), ("}\n", "\n"), ('"error":null', '"error":null,"more":1'),
        ("{", "["), ("{", "<<<<<<< ours\n{"),
    ],
)  # fmt: skip
def test_a_damaged_line_costs_itself(old, new):
    text = write([found((1.5,), wrong="off by 1"), found((4.0,), workload="ffff")])
    assert old in text
    again, bad = read(text.replace(old, new, 1))
    assert found((4.0,), workload="ffff") in again
    assert [each.number for each in bad] == [1]


def test_winners_are_one_a_workload_and_platform():
    here = HERE._replace(device="d")
    every = [
        found((3.0,)), found((2.0,)), found((1.0,), cut=True), found((0.5,), wrong="off by 1"),
        found((math.nan,)), found((1e-15,)), found(()),
        found((9.0,), here=here), found((), workload="00aa"),
    ]  # fmt: skip
    assert select_winners(every) == [every[1], every[7]]
