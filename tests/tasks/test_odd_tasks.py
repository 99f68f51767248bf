"""Odd functions: extracted, kept or dropped for a reason, tuned, built, and never an abort.

Each trouble of the RFC's thread ends as `docs/concepts/tasks.md` says. That is tested here as well,
so that one process has all that asks for the run which tunes and builds them.
"""

import os
from pathlib import Path

import pytest
from tvm import relax

from autopipe.compiler import lowering
from autopipe.errors import ModelError
from tests.support.table import each_row
from tests.tasks.conftest import Odd
from tests.tasks.odd import BRANCHES, TARGET
from tests.tasks.thread import TROUBLES, Trouble, table

DOCS = Path(__file__).parents[2] / "docs" / "concepts" / "tasks.md"
BEGIN, END = "<!-- troubles: tests/tasks/thread.py -->\n", "<!-- end of troubles -->\n"

SIMPLE = "simple: no reduction (include_simple_task)"
EMPTY = "idle: its outputs have no element"
STILL = "idle: it only copies or stores constants"
HIDDEN = "opaque: no schedule can see into its loops"
OPAQUE = "opaque: no schedule can change "
DYNAMIC = "dynamic: dimension 0 of input 0 is symbolic"
NMS = f"{OPAQUE}vision.all_class_non_max_suppression"

EXPECTED: dict[str, list[str | None]] = {
    "prod": [None],
    "prod_of_two": ["small: 2 FLOPs < 10000"],
    "prod_of_integers": [None],
    "argmax": [None],
    "argmin": [None],
    "variance": [None],
    "topk": [f"{OPAQUE}topk"],
    "sort": [f"{OPAQUE}sort"],
    "argsort": [f"{OPAQUE}argsort"],
    "cumsum": [f"{OPAQUE}cumsum"],
    "scatter_elements": [f"{OPAQUE}scatter_elements"],
    "scatter_nd": [f"{OPAQUE}scatter_nd"],
    "scalar": [SIMPLE],
    "scalar_constant": [SIMPLE],
    "empty": [EMPTY],
    "empty_matmul": [EMPTY],
    "boolean": [SIMPLE],
    "compare": [SIMPLE],
    "integer_matmul": [None],
    "byte_matmul": [None],
    "strided_slice": [SIMPLE],
    "gather": [SIMPLE],
    "dynamic_dense": [DYNAMIC],
    "dynamic_relu": [DYNAMIC],
    "shape_of": [f"{OPAQUE}shape_to_tensor"],
    "nms": [NMS] * 4,
    "extern": [HIDDEN],
    "extern_scalar": [HIDDEN],
    "split": [SIMPLE],
    "copy": [STILL],
    "constant": [STILL],
    "transpose": [SIMPLE],
    "norm_dense": [None, None],
    "convolution": [None],
}
"""What the filters make of the tasks of each branch, by default."""

UNMEASURED = {"dynamic_dense", "dynamic_relu", "shape_of", "nms"}
"""Branches with a task that can not be timed: no sizes, or indices that have to fit."""


def test_every_branch_is_looked_at():
    assert EXPECTED.keys() == BRANCHES.keys()


@each_row("branch", EXPECTED)
def test_a_task_is_kept_or_dropped_for_one_reason(odd: Odd, branch: str):
    assert odd.dropped(branch) == EXPECTED[branch]


@each_row("branch", EXPECTED)
def test_all_are_kept_where_all_are_asked_for(odd: Odd, branch: str):
    found = odd.dropped(branch, heuristics=None, include_simple_task=True)
    assert found == [None] * len(EXPECTED[branch])


@each_row("branch", EXPECTED)
def test_inputs_and_outputs_are_told_apart(odd: Odd, branch: str):
    for task in odd.tasks[branch]:
        assert task.outputs
        assert len(task.inputs) <= 4
    if branch in ("topk", "split"):
        assert len(odd.tasks[branch][0].outputs) == 2


def test_what_they_compute_is_right_with_the_schedules_that_were_found(odd: Odd):
    assert "37 outputs agree" in odd.output


@each_row("branch", EXPECTED)
def test_each_is_tuned_or_says_why_not_and_is_built(odd: Odd, branch: str):
    tuned, built = odd.tuned(branch), odd.built(branch)
    assert len(tuned) == len(built) == len(EXPECTED[branch])
    assert all(row["stopped"] for row in tuned)
    assert all(row["failures"] == [] for row in built)
    measured = [row["seconds"] is not None for row in tuned]
    assert all(measured) == (branch not in UNMEASURED)
    for row in tuned:
        assert row["trials"] <= 2


def test_what_tvm_has_no_loops_for_is_said_in_a_line():
    x = relax.Var("x", relax.TensorType((8, 16), "bool"))
    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        with builder.dataflow():
            out = builder.emit_output(relax.op.max(x, axis=1))
        builder.emit_func_output(out)
    with pytest.raises(ModelError, match=r"^TVM cannot compute an op as .*: Cannot decide min_v"):
        lowering.lower(builder.get(), TARGET)


@each_row("trouble", TROUBLES)
def test_a_trouble_has_the_outcome_that_is_told(odd: Odd, trouble: Trouble):
    trouble.proof(odd)


def test_the_page_shows_the_rows_that_are_proven():
    """If this fails the rows changed: run it with BLESS=1."""
    text = DOCS.read_text("utf-8")
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    current = f"{before}{BEGIN}\n{table()}\n{END}{after}"
    if os.environ.get("BLESS"):
        DOCS.write_text(current, "utf-8")
    assert text == current or os.environ.get("BLESS")
