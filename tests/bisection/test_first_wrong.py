"""Which kernel call is the first that is wrong, of calls that were compared."""

import tarfile

import numpy as np
import pytest

from autopipe.api.bisect import find_bisect_target
from autopipe.artifacts.model_nodes import KernelCall
from autopipe.bisection.bisection import BisectedCall, Bisection, CallDifference, Cause
from autopipe.bisection.call_values import GraphValues
from autopipe.bisection.differences import measure_difference, measure_value
from autopipe.bisection.first_wrong import find_first
from autopipe.bisection.slow_kernels import list_slow_lines, rank_by_bound
from autopipe.bisection.table import format_verdict, list_bisection_lines
from autopipe.errors import ConfigError
from tests.profiling.test_profile import profiled
from tests.support.table import each_row

RIGHT = CallDifference(agrees=True, max_abs=0.0, max_rel=0.0)
WRONG = CallDifference(agrees=False, max_abs=0.5, max_rel=0.25, reason="off")


def call(plain=RIGHT, reference=None, *sources, kernel="conv"):
    return BisectedCall(
        kernel=kernel, nodes=("c\x1b",), added=False, scheduled="static on direct", plain=plain,
        reference=reference, tensor="t" if reference else None, sources=sources,
    )  # fmt: skip


@each_row(
    "calls, wrong_outputs, found",
    [
        ([call(), call()], True, (None, None)),
        ([call(), call(WRONG), call(WRONG)], False, (1, Cause.LOOPS)),
        ([call(RIGHT, WRONG)], False, (None, None)),
        ([call(RIGHT, WRONG)], True, (0, Cause.REFERENCE)),
        ([call(RIGHT, WRONG), call(WRONG, WRONG, 0)], True, (0, Cause.REFERENCE)),
        ([call(WRONG, WRONG), call(RIGHT, WRONG, 0)], True, (0, Cause.LOOPS)),
        ([call(RIGHT, WRONG), call(RIGHT, RIGHT, 0)], True, (None, None)),
        ([call(RIGHT, WRONG), call(RIGHT, None, 0), call(RIGHT, RIGHT, 1), call(RIGHT, WRONG, 2)],
         True, (3, Cause.REFERENCE)),
        ([call(RIGHT, WRONG), call(RIGHT, RIGHT), call(RIGHT, WRONG, 0)], True,
         (0, Cause.REFERENCE)),
    ],
)  # fmt: skip
def test_the_first_call_that_is_wrong(calls, wrong_outputs, found):
    assert find_first(calls, wrong_outputs=wrong_outputs) == found


def compared(value, found):
    """Return a difference and the layout in which it is the smallest; there has to be one."""
    made = measure_value(value, found)
    assert made is not None
    return made


def test_a_value_is_found_in_the_layout_of_a_kernel():
    value = np.arange(24, dtype="float32").reshape(1, 2, 3, 4)
    for layout in (value, value.transpose(0, 2, 3, 1), value.reshape(2, 12), value.squeeze()):
        difference, laid_out = compared(value, np.ascontiguousarray(layout))
        assert difference.agrees
        assert laid_out.shape == layout.shape
    wrong, laid_out = compared(value, value.transpose(0, 2, 3, 1) + 1)
    assert (wrong.agrees, wrong.max_abs) == (False, 1.0)
    assert laid_out.shape == (1, 3, 4, 2)


def test_a_value_in_an_order_that_no_layout_has_is_not_compared():
    value = np.arange(24, dtype="float32").reshape(2, 3, 4)
    assert measure_value(value, np.zeros((6, 4), "float32")) is None
    assert measure_value(value, np.zeros((2, 3), "float32")) is None


@each_row(
    "found, agrees, largest",
    [
        ([1.0, np.nan, np.inf], True, 0.0),
        ([1.0, 2.0, np.inf], False, None),
        ([1.0, np.nan, -np.inf], False, None),
        ([1.5, np.nan, np.inf], False, 0.5),
    ],
)
def test_what_is_not_finite_has_to_be_the_same(found, agrees, largest):
    expected = np.array([1.0, np.nan, np.inf], "float32")
    difference = measure_difference([expected], [np.array(found, "float32")])
    assert (difference.agrees, difference.max_abs) == (agrees, largest)


def site(*nodes, added=False):
    return KernelCall(kernel="k", nodes=nodes, added=added)


def test_a_call_makes_what_its_last_node_hands_on():
    """Conv -> a -> Relu -> b -> Softmax -> c, with b also a result; Softmax is two kernels."""
    graph = GraphValues(
        outputs=(("a",), ("b",), ("c",)), results=frozenset({"b", "c"}),
        readers={"a": frozenset({1}), "b": frozenset({2})},
    )  # fmt: skip
    sites = [site(0, added=True), site(0, 1), site(2), site(2), site(7), site()]
    assert graph.of_calls(sites) == [(), ("b",), (), ("c",), (), ()]


def bisection(**fields):
    calls = tuple(call(kernel=f"conv{at}") for at in range(20))
    known = {"case": "random-0", "sizes": {"n": 3}, "wrong": (), "library": "lib.so"}
    return Bisection(**{**known, "calls": calls, **fields})


def test_a_table_shows_the_neighbours_of_the_first():
    calls = [call(kernel=f"conv{at}") for at in range(20)]
    calls[9] = call(WRONG, WRONG, kernel="conv9")
    made = bisection(calls=calls, first=9, cause=Cause.LOOPS, runtime="onnxruntime")
    lines = list(list_bisection_lines(made))
    assert lines[0].startswith("case random-0 with n = 3, lib.so: 20 kernel calls, 20 compared")
    shown = [line.split()[-2] for line in lines if line.endswith("c\\x1b")]
    assert shown == [f"conv{at}:" for at in range(6, 13)]
    assert next(line for line in lines if "conv9" in line).split()[:4] == [
        ">",
        "10",
        "!0.25",
        "!0.25",
    ]
    assert "largest error 0.5, 0.25 of the largest" in format_verdict(made)
    assert "scheduled by static on direct" in format_verdict(made)


def test_wrong_outputs_without_a_wrong_kernel_are_no_agreement():
    assert not bisection(wrong=("y: off",)).agrees
    assert "wrong: 1 output, though each kernel" in format_verdict(bisection(wrong=("y: off",)))
    assert format_verdict(bisection()) == "none leaves: each kernel computes what it should"


def test_kernels_are_ranked_by_what_they_lose():
    made = rank_by_bound(profiled(), frozenset({"conv", "add"}), "random-0")
    assert [(one.kernel, one.position) for one in made.kernels] == [
        ("add", 2), ("conv", 0), ("conv", 1),
    ]  # fmt: skip
    assert [one.seconds - one.wanted for one in made.kernels] == pytest.approx([8e-7, 0, -4e-6])
    assert "kernel add (sum\\x1b) loses most: 0.8 us a run" in list(list_slow_lines(made))[-1]


def test_no_kernel_is_named_where_none_loses():
    made = rank_by_bound(profiled(), frozenset({"conv"}), "random-0")
    assert list(list_slow_lines(made))[-1].startswith("none loses time against its bound")


def test_a_package_is_not_bisected(tmp_path):
    with tarfile.open(tmp_path / "a.tar", "w") as package:
        package.addfile(tarfile.TarInfo("manifest.json"))
    with pytest.raises(ConfigError, match=r"a\.tar is a package; bisect takes the pipeline file"):
        find_bisect_target(tmp_path / "a.tar")
