"""The troubles of the RFC's thread, and what proves that each has the outcome it is said to have.

`docs/concepts/tasks.md` shows the same rows.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, cast

from autopipe.config.tasks import Tasks
from tests.tasks.conftest import Odd


@dataclass(frozen=True, slots=True)
class Trouble:
    """One row."""

    name: str
    """A word for it, for people who look for a test."""
    what: str
    where: str
    """Where it bit them."""
    outcome: str
    """What becomes of it here."""
    proof: Callable[[Odd], None]
    """Raises AssertionError if that is not so."""


def _is(odd: Odd, word: str, *branches: str, **section: object) -> None:
    for branch in branches:
        reasons = odd.dropped(branch, **section)
        assert reasons, branch
        assert all(reason and reason.startswith(f"{word}: ") for reason in reasons), reasons


def _searched(odd: Odd, *branches: str) -> None:
    """A task is searched, its best schedule is built in, and nothing fails on the way."""
    for branch in branches:
        for tuned, built in zip(odd.tuned(branch), odd.built(branch), strict=True):
            assert tuned["seconds"] is not None
            assert tuned["failures"] == built["failures"] == []
            assert built["reason"] == "best record"


def _placeholders(odd: Odd) -> None:
    _is(odd, "idle", "copy", "constant", "empty")
    _is(odd, "idle", "copy", include_simple_task=True)


def _layout_transform(odd: Odd) -> None:
    _is(odd, "simple", "transpose")
    assert odd.dropped("transpose", include_simple_task=True) == [None]


def _injective(odd: Odd) -> None:
    section = {"include_simple_task": True, "heuristics": {"min_injective_ops": 2}}
    _is(odd, "short", "transpose", "gather", **section)
    assert odd.dropped("boolean", **section) == [None]


def _both(odd: Odd) -> None:
    from autopipe.tuning.search.worth import SearchWorth

    _is(odd, "simple", "transpose")  # S2
    row = odd.tuned("prod")[0]
    state = SimpleNamespace(
        best=row["seconds"], share=0.0005, stopped=None, bandit=SimpleNamespace(arms={}),
        task=SimpleNamespace(name="prod", calls=1),
    )  # fmt: skip
    assert state.best < math.inf
    SearchWorth.of(cast("Any", [state]), Tasks().judge, [0.0]).set_aside()
    assert state.stopped == "too little to gain"


def _everything(odd: Odd) -> None:
    for branch in odd.tasks:
        found = odd.dropped(branch, include_simple_task=True, heuristics=None)
        assert not any(found)


def _two_reductions(odd: Odd) -> None:
    assert odd.tasks["variance"][0].reductions == 2
    _searched(odd, "variance")


def _two_anchors(odd: Odd) -> None:
    norm, dense = odd.tasks["norm_dense"]
    assert norm.info.names == ("nn.layer_norm",)
    assert dense.info.names == ("matmul",)
    _searched(odd, "norm_dense")


def _scalars(odd: Odd) -> None:
    _is(odd, "simple", "scalar", "scalar_constant")
    _searched(odd, "scalar", "scalar_constant")


def _symbolic(odd: Odd) -> None:
    _is(odd, "dynamic", "dynamic_dense", "dynamic_relu")


def _large_dense(odd: Odd) -> None:
    _is(odd, "dynamic", "dynamic_dense")
    (built,) = odd.built("dynamic_dense")
    assert built["engine"] == "default"


def _product(odd: Odd) -> None:
    assert odd.dropped("prod") == odd.dropped("prod_of_integers") == [None]
    _searched(odd, "prod", "prod_of_integers")


def _two_elements(odd: Odd) -> None:
    _is(odd, "small", "prod_of_two")
    _searched(odd, "prod_of_two")


def _one_abort(odd: Odd) -> None:
    assert any(row["seconds"] is None for row in odd.tuned("nms"))
    _searched(odd, "convolution")


def _shape_of(odd: Odd) -> None:
    _is(odd, "opaque", "shape_of")


def _hidden_shape(odd: Odd) -> None:
    (task,) = odd.tasks["shape_of"]
    assert not task.inputs
    assert all(extent > 0 for tensor in task.outputs for extent in tensor.shape)
    _is(odd, "dynamic", "shape_of", heuristics={"drop_opaque": False})


def _opaque(odd: Odd) -> None:
    _is(
        odd, "opaque", "scatter_elements", "scatter_nd", "cumsum", "sort", "argsort", "topk", "nms",
        "extern", "extern_scalar",
    )  # fmt: skip
    _is(odd, "opaque", "extern", include_simple_task=True)


def _packed_layout(odd: Odd) -> None:
    (task,) = odd.tasks["convolution"]
    assert task.info.ops[0].layout == "NCHW"


def _delete(odd: Odd) -> None:
    _is(odd, "excluded", "convolution", exclude=["nn.conv2d"])
    _is(odd, "excluded", "prod", exclude=[{"op": "prod", "shape": [256, 512]}])
    assert odd.dropped("argmax", exclude=["nn.conv2d"]) == [None]


def _only_convolutions(odd: Odd) -> None:
    _is(odd, "not included", "prod", "argmax", "integer_matmul", include=["nn.conv2d"])
    assert odd.dropped("convolution", include=["nn.conv2d"]) == [None]


def _task_48(odd: Odd) -> None:
    (task,) = odd.tasks["convolution"]
    assert task.info.names == ("nn.conv2d", "add", "nn.relu")
    _searched(odd, "convolution")


def _control_flow(_: Odd) -> None:
    from tests.tasks.branching import names

    assert names() == ["matmul", "nn.relu"]


TROUBLES = (
    Trouble(
        "placeholders",
        "a function of placeholders only becomes a task",
        "the RFC: too many tasks",
        "dropped as `idle`: it only copies or stores constants, or has no element",
        _placeholders,
    ),
    Trouble(
        "layout_transform",
        "one layout transform becomes a task",
        "the RFC: too many tasks on CPU",
        "dropped as `simple`; `include_simple_task: true` keeps it",
        _layout_transform,
    ),
    Trouble(
        "injective",
        'ignore "less than N injective ops"',
        "the RFC, S2",
        "`heuristics.min_injective_ops` drops it as `short`",
        _injective,
    ),
    Trouble(
        "both",
        "S1 or S2?",
        '"could we do both?"',
        "both: S2 drops before anything is measured, S1 judges what it leaves by measured time",
        _both,
    ),
    Trouble(
        "everything",
        "some want to see all tasks",
        "to improve the task scheduler",
        "`heuristics: null` with `include_simple_task: true` keeps them all",
        _everything,
    ),
    Trouble(
        "two_reductions",
        "a function with two reductions does not compile",
        '"Cannot apply TOPI schedule to a primitive function with two complicated ops"',
        "one task, searched and built",
        _two_reductions,
    ),
    Trouble(
        "two_anchors",
        "a norm and a dense layer in one function, fused unintentionally",
        "the same error on `qnn.aie.layer_norm` and `nn.dense`",
        "two tasks, each with its own schedule",
        _two_anchors,
    ),
    Trouble(
        "scalars",
        "zero-dimensional constants",
        "the traversal crashed on `compile_engine_const` with `ndims=0`",
        "extracted; `simple`, and searched where that is asked for",
        _scalars,
    ),
    Trouble(
        "symbolic",
        "dynamic shapes",
        "`get_const_tuple` and printing crashed on `Any`",
        "extracted, dropped as `dynamic`, built",
        _symbolic,
    ),
    Trouble(
        "large_dense",
        "a large dense layer with dynamic rows cannot be tuned",
        "over 40 % of Mask R-CNN's time",
        "dropped as `dynamic`; built in parallel and with vectors for any number of rows",
        _large_dense,
    ),
    Trouble(
        "product",
        "a product reduction, `x*y`",
        '"Unsupported reduction operator(x*y)"',
        "kept, searched and built",
        _product,
    ),
    Trouble(
        "two_elements",
        "a product of two elements, task 48 of the run",
        '"Check failed: !to_fuse.empty()" in the search',
        "dropped as `small`; searched without an abort where that is asked for",
        _two_elements,
    ),
    Trouble(
        "one_abort",
        "the failure of one task",
        "ended the tuning of all, after 5765 s",
        "costs that contender of that task; the others go on",
        _one_abort,
    ),
    Trouble(
        "shape_of",
        "tasks of only `shape_of`",
        "it is opaque, which counts as more than a reduction",
        "dropped as `opaque`",
        _shape_of,
    ),
    Trouble(
        "hidden_shape",
        "`shape_of` has no input tensor, and its output is static",
        "the check of inputs and outputs did not find the symbolic dimension",
        "sizes that are arguments count: `dynamic`, even with `drop_opaque: false`",
        _hidden_shape,
    ),
    Trouble(
        "opaque",
        "opaque ops need no tuning: scatter, cumsum, sort, NMS, `te.extern`",
        "lots of such tasks in advanced models",
        "dropped as `opaque`, by name or because no schedule sees into their loops",
        _opaque,
    ),
    Trouble(
        "packed_layout",
        "a task of `conv2d_NCHWc` where the model says NCHW",
        "the layout was altered for a template before tasks were extracted",
        "a task has the layout of the graph; packing is an implementation that it may choose",
        _packed_layout,
    ),
    Trouble(
        "delete",
        "a task has to be taken out",
        "`del tasks[48]`, by an index that the next run may give to another",
        "`exclude`, by a pattern",
        _delete,
    ),
    Trouble(
        "only_convolutions",
        "only convolutions are to be tuned",
        '"I hacked the task extraction code"',
        "`include: [nn.conv2d]`",
        _only_convolutions,
    ),
    Trouble(
        "task_48",
        "the convolution that was taken for task 48: 256 channels of 13x13",
        "in the listing of the failed run",
        "kept, searched and built",
        _task_48,
    ),
    Trouble(
        "control_flow",
        "a model with control flow",
        "needed the VM compiler for extraction",
        "what both branches call is extracted",
        _control_flow,
    ),
)


def table() -> str:
    """Return the rows as Markdown."""
    lines = ["| trouble | where it bit them | outcome here |", "|---|---|---|"]
    lines += [f"| {each.what} | {each.where} | {each.outcome} |" for each in TROUBLES]
    return "\n".join(lines) + "\n"
