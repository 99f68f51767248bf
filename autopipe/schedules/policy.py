"""The schedule policy: which rule a task falls under, and what that allows."""

from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Final, NamedTuple

from autopipe.config.match import Match
from autopipe.config.schedules import Rule
from autopipe.op_info import Op
from autopipe.schedules.implementation import DIRECT
from autopipe.task import Task

_ALONE: Final = {"ansor": (DIRECT,)}
"""What an engine is for unless it is asked otherwise: sketches tile what they find by themselves,
and the stages of a fast algorithm only multiply what has to be measured."""


class Contender(NamedTuple):
    """Who may schedule a task: an engine, on an implementation."""

    engine: str
    implementation: str


@dataclass(frozen=True, slots=True)
class Policy:
    """Section `schedules`."""

    rules: tuple[Rule, ...]
    fallback: tuple[str, ...]

    def rule(self, task: Task, share: float) -> tuple[int | None, Rule]:
        """Return the first rule that matches, with its position; without one, no engine may."""
        for position, rule in enumerate(self.rules):
            if matches(rule.match, task, share):
                return position, rule
        return None, Rule(engines=())

    def idle(self, tasks: Sequence[tuple[Task, float]]) -> list[int]:
        """Return the positions of the rules that match none of these tasks with their shares."""
        return [
            position
            for position, rule in enumerate(self.rules)
            if not any(matches(rule.match, task, share) for task, share in tasks)
        ]

    def chain(self, rule: Rule) -> tuple[str, ...]:
        """Return the fallback chain of the tasks of a rule."""
        return rule.fallback or self.fallback


def allows(rule: Rule, engine: str, implementation: str) -> bool:
    """Tell whether a rule lets an engine, or a fallback, schedule an implementation."""
    globs = rule.implementations or _ALONE.get(engine, ("*",))
    return any(fnmatchcase(implementation, glob) for glob in globs)


def matches(match: Match, task: Task, share: float) -> bool:
    """Tell whether all that is given holds for a task with that share of the model's time."""
    tensors = (*task.inputs, *task.outputs)
    return (
        _op_fits(match, task)
        and match.kind in (None, task.info.kind)
        and (match.dtype is None or any(tensor.dtype == match.dtype for tensor in tensors))
        and (match.shape is None or any(_shape_fits(match.shape, t.shape) for t in tensors))
        and share >= (match.share or 0.0)
    )


def _op_fits(match: Match, task: Task) -> bool:
    """Tell whether one op has the name, the attributes and the layout, all three."""
    return any(
        fnmatchcase(op.name, match.op)
        and all(_same(op.attributes.get(name), value) for name, value in match.attributes.items())
        and match.layout in (None, op.layout)
        for op in task.info.ops or (Op(name=""),)
    )


def _same(found: object, wanted: object) -> bool:
    """Compare an attribute, JSON's list, with what YAML said, a tuple."""
    return found == (list(wanted) if isinstance(wanted, tuple) else wanted)


def _shape_fits(wanted: Sequence[int | str], shape: Sequence[int]) -> bool:
    return len(wanted) == len(shape) and all(map(_size_fits, wanted, shape))


def _size_fits(wanted: int | str, size: int) -> bool:
    """Tell whether a size fits; one that is symbolic, -1, fits what is left open."""
    if isinstance(wanted, int) or wanted == "*":
        return wanted in (size, "*")
    least, _, most = wanted.partition("..")
    return int(least or 0) <= size and (not most or size <= int(most))
