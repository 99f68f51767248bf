"""Section `tasks`: which tuning tasks are kept (the RFC's S2), and which are searched (S1)."""

from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import Field

from autopipe.config.frozen import Consistent, Contradiction, Distinct, Frozen
from autopipe.config.match import Match, Pattern

_SIMPLE = ("elementwise", "broadcast", "injective")
"""Kinds of tasks that never reduce."""

Share = Annotated[float, Field(ge=0, le=1)]


class Heuristics(Frozen, frozen=True):
    """S2: rules that drop a task before any measurement."""

    drop_idle: bool = True
    """Drop tasks that compute nothing: constants, copies in place, empty tensors."""
    drop_opaque: bool = True
    """Drop tasks with loops that TVM cannot analyze: scatter, cumsum, sort, NMS, extern calls."""
    drop_dynamic: bool = True
    """Drop tasks with a symbolic dimension."""
    min_injective_ops: Annotated[int, Field(ge=1)] | None = None
    """Simple tasks with fewer ops than this are dropped; needs `include_simple_task: true`."""
    min_flops: Annotated[float, Field(ge=0)] = 1e4
    """Tasks with fewer floating-point operations than this are dropped, simple ones excepted."""
    min_bytes: Annotated[int, Field(ge=0)] = 0
    """Tasks with fewer bytes of inputs and outputs than this are dropped."""
    min_share: Share = 0.0
    """Tasks with less than this share of the model's estimated time are dropped."""
    heaviest: Annotated[int, Field(ge=1)] | None = None
    """Number of tasks to keep after all other rules: those with the largest share of the time."""


class Judge(Frozen, frozen=True):
    """S1: which tasks get trials beyond the measurement of the schedules that need no search."""

    min_gain: Share = 0.02
    """The tasks with the smallest headroom are not searched, as long as their total is below
    this part of the model's time. Headroom is the measured time above the lower bound of the
    machine for arithmetic and memory traffic. It is evaluated before the search and after each
    batch; 0 searches all. With several likely sizes it is a part of the time at one of them."""
    min_space: Annotated[int, Field(ge=1)] = 2
    """Least number of schedules of an engine for a task that are searched."""


class Tasks(Consistent, frozen=True):
    """Which of the extracted tasks are tuned."""

    include: Annotated[
        Distinct[Pattern], Field(min_length=1, json_schema_extra={"default": ["*"]})
    ] = (Match(),)
    """Only tasks that match one of these patterns are kept. A pattern has the fields of
    `schedules.rules.N.match`; a text is short for the name of an op: `nn.conv2d*` for
    `{op: nn.conv2d*}`."""
    exclude: Distinct[Pattern] = ()
    """Tasks that match one of these patterns are dropped; otherwise as `include`."""
    include_simple_task: bool = False
    """Keep simple tasks too (the RFC's flag): those without a reduction, so that each of their ops
    is elementwise, broadcast or injective, layout transforms among them."""
    heuristics: Heuristics | None = Heuristics()
    """S2: rules that drop tasks not worth tuning; each dropped task is listed with its reason.
    Null leaves that to S1."""
    judge: Judge | None = Judge()
    """S1: the scheduler measures each kept task once, with the schedules that need no search, and
    continues with those that have enough headroom. Null searches all."""
    scheduler: Literal["gradient", "round_robin"] = "gradient"
    """S1: allocation of trials to tasks. `gradient` gives the next batch to the task whose
    improvement shortens the whole model most; `round_robin` treats all alike."""
    allow_empty: bool = False
    """Whether a filter may leave no task at all; it always may where `tuning` is null."""
    on_task_failure: Literal["fallback", "fail"] = "fallback"
    """Reaction to a repeated crash, hang or memory exhaustion: `fallback` rejects the schedule and
    uses the next one of the task's chain, `fail` ends the run."""

    def _contradictions(self) -> Iterator[Contradiction]:
        for position, pattern in enumerate(self.exclude):
            if pattern in self.include and pattern != Match():
                why = "is in `include` too, and nothing fits both; leave it out of one"
                yield ("exclude", position), str(pattern), why
        if self.include_simple_task:
            return
        for position, pattern in enumerate(self.include):
            if pattern.kind in _SIMPLE:
                why = f"keeps nothing: {pattern.kind} tasks are simple; set `include_simple_task`"
                yield ("include", position, "kind"), pattern.kind, why
        least = self.heuristics and self.heuristics.min_injective_ops
        if least is not None:
            why = "drops nothing: all simple tasks are dropped; set `include_simple_task: true`"
            yield ("heuristics", "min_injective_ops"), least, why
