"""Task filters: why a task is not tuned. The RFC's S2, and its `include_simple_task`.

They see tasks only, so that they need no TVM and can be told before tuning.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Final

from autopipe.config.match import Match
from autopipe.config.tasks import Heuristics, Tasks
from autopipe.tasks.matching import matches
from autopipe.tasks.task import Task
from autopipe.tasks.tensor import Tensor

_MOST_SIZES: Final = 16
"""Sizes in a shape, at most."""

_HANDWRITTEN: Final = (
    "shape_of", "shape_to_tensor", "scatter*", "cumsum", "cumprod", "sort", "argsort", "topk",
    "unique", "nonzero", "*non_max_suppression", "vision.get_valid_counts", "bucketize",
)  # fmt: skip
"""Ops that TVM writes out by hand. Their loops differ by target, and some look like any others."""

Reason = Callable[[Task, Sequence[Task], Tasks], str | None]
"""Explains why a task is dropped, None to keep it, from: the task; all tasks that the filters
before kept, the task among them; the section `tasks`."""

HeuristicReason = Callable[[Task, Sequence[Task], Heuristics], str | None]
"""The same from `tasks.heuristics`, without which nothing is dropped."""


@dataclass(frozen=True, slots=True)
class Filter:
    """One rule that drops tasks."""

    name: str
    """The word that its reasons start with."""
    remedy: str
    """What in the pipeline file keeps the tasks that it drops."""
    explain: Reason


def _heuristic(name: str, remedy: str, explain: HeuristicReason) -> Filter:
    """Make a filter of a rule that `tasks.heuristics: null` switches off."""

    def explain_unless_off(task: Task, kept: Sequence[Task], section: Tasks) -> str | None:
        return explain(task, kept, section.heuristics) if section.heuristics else None

    return Filter(name, f"tasks.heuristics.{remedy}", explain_unless_off)


def _explain_not_included(task: Task, _kept: Sequence[Task], section: Tasks) -> str | None:
    if Match() in section.include or any(matches(one, task, task.share) for one in section.include):
        return None
    return "tasks.include does not match it"


def _explain_excluded(task: Task, _kept: Sequence[Task], section: Tasks) -> str | None:
    for position, pattern in enumerate(section.exclude):
        if matches(pattern, task, task.share):
            return f"tasks.exclude.{position}, {pattern}, matches it"
    return None


def _explain_idle(task: Task, _kept: Sequence[Task], heuristics: Heuristics) -> str | None:
    """Drop what computes no element: the RFC's functions without any call."""
    if not heuristics.drop_idle:
        return None
    if task.outputs and not any(math.prod(tensor.shape) for tensor in task.outputs):
        return "its outputs have no element"
    return "it only copies or stores constants" if task.idle else None


def _explain_opaque(task: Task, _kept: Sequence[Task], heuristics: Heuristics) -> str | None:
    """Drop what is written out by hand, or has a block that does not say what it does."""
    if not heuristics.drop_opaque:
        return None
    for op in task.info.names:
        if any(fnmatchcase(op, pattern) for pattern in _HANDWRITTEN):
            return f"no schedule can change {op}"
    return "no schedule can see into its loops" if task.opaque else None


def _explain_dynamic(task: Task, kept: Sequence[Task], heuristics: Heuristics) -> str | None:
    """Drop what has a symbolic dimension: of an argument, or of what an op inside computes."""
    if not heuristics.drop_dynamic:
        return None
    if task.sizes and _computes_shapes(task):
        return "it only computes shapes"
    if task.likely is not None:
        same = [other.index for other in kept if other.workload == task.likely]
        if same:
            return f"open sizes; at likely ones it is task {same[0]}"
        return "open sizes; no task at likely ones is the same"
    for what, tensor in _tensors(task):
        if -1 in tensor.shape:
            return f"dimension {tensor.shape.index(-1)} of {what} is symbolic"
    return f"symbolic sizes as arguments: {task.sizes}" if task.sizes else None


def _computes_shapes(task: Task) -> bool:
    """Tell whether all that a task reads and writes are a few whole numbers, as a shape's are."""
    return all(
        "int" in tensor.dtype and -1 not in tensor.shape and math.prod(tensor.shape) <= _MOST_SIZES
        for tensor in (*task.inputs, *task.outputs)
    )


def _tensors(task: Task) -> Iterator[tuple[str, Tensor]]:
    """Yield every tensor with its name; an op may hide one that no argument shows."""
    for what, tensors in (("input", task.inputs), ("output", task.outputs)):
        for position, tensor in enumerate(tensors):
            yield f"{what} {position}", tensor
    for op in task.info.ops:
        for tensor in op.outputs:
            yield op.name, tensor


def _explain_simple(task: Task, _kept: Sequence[Task], section: Tasks) -> str | None:
    drops = task.simple and not section.include_simple_task
    return "no reduction (include_simple_task)" if drops else None


def _explain_short(task: Task, _kept: Sequence[Task], heuristics: Heuristics) -> str | None:
    """Drop simple tasks of few ops: the RFC's functions with less than N injective ops."""
    count, least = len(task.info.ops), heuristics.min_injective_ops
    if least is None or not task.simple or count >= least:
        return None
    return f"{count} injective op{'s' * (count != 1)} < {least}"


def _explain_small(task: Task, _kept: Sequence[Task], heuristics: Heuristics) -> str | None:
    """Drop few floating-point operations; a task that is simple moves data instead."""
    if task.simple or task.flops >= heuristics.min_flops:
        return None
    return f"{task.flops:g} FLOPs < {heuristics.min_flops:g}"


def _explain_light(task: Task, _kept: Sequence[Task], heuristics: Heuristics) -> str | None:
    """Drop few bytes of inputs and outputs."""
    least = heuristics.min_bytes
    return f"{task.bytes} bytes < {least}" if task.bytes < least else None


def _explain_minor(task: Task, _kept: Sequence[Task], heuristics: Heuristics) -> str | None:
    """Drop a small share of the time, as the roofline estimates it."""
    least = heuristics.min_share
    return f"{task.share:.3%} of the estimated time < {least:.3%}" if task.share < least else None


def _explain_not_heaviest(task: Task, kept: Sequence[Task], heuristics: Heuristics) -> str | None:
    """Drop all but the tasks with the largest shares of the estimated time."""
    if heuristics.heaviest is None:
        return None
    ranked = sorted(kept, key=lambda other: (-other.share, other.index))
    place = [other.index for other in ranked].index(task.index)
    if place < heuristics.heaviest:
        return None
    return f"number {place + 1} of {len(kept)} by share, {heuristics.heaviest} are kept"


FILTERS: Final = (
    Filter("not included", "another pattern in tasks.include", _explain_not_included),
    Filter("excluded", "fewer patterns in tasks.exclude", _explain_excluded),
    _heuristic("idle", "drop_idle: false", _explain_idle),
    _heuristic("opaque", "drop_opaque: false", _explain_opaque),
    _heuristic("dynamic", "drop_dynamic: false", _explain_dynamic),
    Filter("simple", "tasks.include_simple_task: true", _explain_simple),
    _heuristic("short", "min_injective_ops: null", _explain_short),
    _heuristic("small", "min_flops: 0", _explain_small),
    _heuristic("light", "min_bytes: 0", _explain_light),
    _heuristic("minor", "min_share: 0", _explain_minor),
    _heuristic("not among the heaviest", "heaviest: null", _explain_not_heaviest),
)
"""Applied in this order; the first reason is the one that is told."""


def apply_filters(tasks: Sequence[Task], section: Tasks) -> list[Task]:
    """Return the same tasks, each dropped one with its reason."""
    found = list(tasks)
    for one in FILTERS:
        kept = [task for task in found if task.dropped is None]
        reasons = {task.index: one.explain(task, kept, section) for task in kept}
        found = [
            task.model_copy(update={"dropped": f"{one.name}: {reason}"})
            if (reason := reasons.get(task.index))
            else task
            for task in found
        ]
    return found


def tally(tasks: Sequence[Task]) -> dict[str, int]:
    """Return how many tasks each filter dropped, by its name, the greediest first."""
    dropped = (task.dropped.partition(": ")[0] for task in tasks if task.dropped is not None)
    return dict(Counter(dropped).most_common())


def nothing_left(tasks: Sequence[Task]) -> str:
    """Say which filter dropped how many tasks, and what keeps them."""
    remedies = {kind.name: kind.remedy for kind in FILTERS}
    parts = [
        f"{name} drops {count} ({remedies[name]} keeps them)"
        for name, count in tally(tasks).items()
    ]
    if not parts:
        return "tasks: the model has none; accept that with tasks.allow_empty: true"
    return (
        f"tasks: none of {len(tasks)} is left: {', '.join(parts)}; "
        "or accept it with tasks.allow_empty: true"
    )
