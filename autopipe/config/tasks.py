"""Section `tasks`: which tuning tasks are kept (the RFC's S1 and S2)."""

from typing import Annotated, Literal

from pydantic import Field

from autopipe.config.frozen import Frozen


class Heuristics(Frozen, frozen=True):
    """S2: rules that drop a task before anything is measured."""

    min_flops: Annotated[float, Field(ge=0)] = 1e5
    """Tasks with fewer floating-point operations than this are dropped."""


class Tasks(Frozen, frozen=True):
    """Which of the extracted tasks are tuned."""

    include_simple_task: bool = False
    """Keep tasks without a reduction too (the RFC's flag): elementwise, injective, layout ops."""
    heuristics: Heuristics = Heuristics()
    """S2: rules that drop tasks not worth tuning; each dropped task is listed with its reason."""
    scheduler: Literal["gradient", "round_robin"] = "gradient"
    """S1: who divides the trials among tasks. `gradient` gives the next batch to the task whose
    improvement shortens the whole model most; `round_robin` treats all alike."""
    allow_empty: bool = False
    """Whether a filter that leaves no task at all is accepted."""
