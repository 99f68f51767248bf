"""The grammar of the filters."""

import pytest

from autopipe.config.match import Match
from tests.config.conftest import GOOD
from tests.config.test_schema import errors
from tests.support.table import each_row


def section(text):
    return f"{GOOD}tasks: {{{text}}}\n"


def test_a_pattern_is_the_name_of_an_op_or_a_section(read):
    text = section(
        "include: [nn.conv2d*, {op: matmul, dtype: float32}], exclude: [{shape: [1, '8..']}]"
    )
    found = read(text).tasks
    assert found.include == (Match(op="nn.conv2d*"), Match(op="matmul", dtype="float32"))
    assert found.exclude == (Match(shape=(1, "8..")),)
    assert errors(text) == []


def test_a_pattern_is_shown_as_it_would_be_written(read):
    patterns = (
        "[nn.conv2d*, {op: a, kind: opaque, attributes: {strides: [1, 1], groups: null},"
        " shape: [1, '*'], share: 0.5}, {dtype: int8}]"
    )
    found = read(section(f"include: {patterns}")).tasks.include
    assert [str(each) for each in found] == [
        "nn.conv2d*",
        (
            "{op: a, kind: opaque, attributes: {strides: [1, 1], groups: null}, "
            "shape: [1, *], share: 0.5}"
        ),
        "{dtype: int8}",
    ]


@pytest.mark.parametrize(
    "text",
    [
        "heuristics: null, judge: null, include_simple_task: true",
        "heuristics: {min_injective_ops: 2}, include_simple_task: true",
        "include: [{kind: injective}], include_simple_task: true",
        "exclude: ['*'], allow_empty: true",
    ],
)
def test_these_do_not_contradict_themselves(read, text):
    read(section(text))


@each_row(
    "text, says",
    [
        ("include: []", "tasks.include: a list should have at least 1 item, not 0"),
        ("include: [5]", "tasks.include.0: 5 should be a section of fields"),
        ("include: ['']", "tasks.include.0.op: '' should have at least 1 character"),
        ("include: [a, a]", "tasks.include: a is listed twice"),
        ("include: [{opp: a}]", "tasks.include.0.opp: unknown key; did you mean `op`?"),
        ("include: [relax.nn.conv2d]", "'relax.nn.conv2d' names no op; leave out `relax.`"),
        ("exclude: [{dtype: flaot32}]", "'flaot32' is no element type; write float32"),
        ("exclude: [{layout: nhwc}]", "'nhwc' is no layout; write NHWC"),
        ("exclude: [{shape: ['64..8']}]", "'64..8' fits no size; write '8..64'"),
        ("include: [a, b], exclude: [b]", "exclude.0: 'b' is in `include` too, and nothing fits"),
        ("exclude: ['*']", "exclude.0: '*' excludes every task; name an op, or accept it with"),
        ("include: [{kind: broadcast}]", "'broadcast' keeps nothing: broadcast tasks are simple"),
        ("heuristics: {min_injective_ops: 2}", "min_injective_ops: 2 drops nothing: all simple"),
        ("heuristics: {heaviest: 0}", "heaviest: 0 should be greater than or equal to 1"),
        ("heuristics: {min_share: 1.5}", "min_share: 1.5 should be less than or equal to 1"),
        ("heuristics: {min_flop: 1}", "min_flop: unknown key; did you mean `min_flops`?"),
        ("judge: {min_gain: -0.1}", "min_gain: -0.1 should be greater than or equal to 0"),
        ("judge: {min_space: 0}", "min_space: 0 should be greater than or equal to 1"),
    ],
)
def test_what_can_not_be_meant_is_refused(refused, text, says):
    (said,) = refused(section(text))
    assert said.startswith("f:9:")
    assert says in said
