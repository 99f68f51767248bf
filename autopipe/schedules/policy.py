"""The schedule policy: which engines a task is given to."""

from collections.abc import Sequence
from fnmatch import fnmatchcase

from autopipe.config.schedules import Rule
from autopipe.task import Task


def engines_for(task: Task, rules: Sequence[Rule]) -> tuple[str, ...]:
    """Return the engines of the first rule that matches an op of the task; () if none does."""
    for rule in rules:
        if any(fnmatchcase(op, rule.match.op) for op in task.ops or ("",)):
            return rule.engines
    return ()
