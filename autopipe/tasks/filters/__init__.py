"""Task filters: why a task is not tuned. The RFC's S2, and its `include_simple_task`."""

from collections import Counter
from collections.abc import Sequence
from typing import Final

from autopipe.config.tasks import Tasks
from autopipe.tasks.filters.definition import Filter
from autopipe.tasks.filters.dynamic import Dynamic
from autopipe.tasks.filters.excluded import Excluded
from autopipe.tasks.filters.heaviest import Heaviest
from autopipe.tasks.filters.idle import Idle
from autopipe.tasks.filters.included import Included
from autopipe.tasks.filters.light import Light
from autopipe.tasks.filters.minor import Minor
from autopipe.tasks.filters.opaque import Opaque
from autopipe.tasks.filters.short import Short
from autopipe.tasks.filters.simple import Simple
from autopipe.tasks.filters.small import Small
from autopipe.tasks.task import Task

FILTERS: Final[tuple[type[Filter], ...]] = (
    Included,
    Excluded,
    Idle,
    Opaque,
    Dynamic,
    Simple,
    Short,
    Small,
    Light,
    Minor,
    Heaviest,
)
"""Applied in this order; the first reason is the one that is told."""


def apply_filters(tasks: Sequence[Task], section: Tasks) -> list[Task]:
    """Return the same tasks, each dropped one with its reason."""
    found = list(tasks)
    for task_filter in [made for kind in FILTERS if (made := kind.of(section))]:
        kept = [task for task in found if task.dropped is None]
        reasons = {task.index: task_filter.reason(task, kept) for task in kept}
        found = [
            task.model_copy(update={"dropped": f"{task_filter.name}: {reason}"})
            if (reason := reasons.get(task.index))
            else task
            for task in found
        ]
    return found


def count_dropped(tasks: Sequence[Task]) -> dict[str, int]:
    """Return how many tasks each filter dropped, by its name, the greediest first."""
    dropped = (task.dropped.partition(": ")[0] for task in tasks if task.dropped is not None)
    return dict(Counter(dropped).most_common())


def explain_no_tasks(tasks: Sequence[Task]) -> str:
    """Say which filter dropped how many tasks, and what keeps them."""
    remedies = {kind.name: kind.remedy for kind in FILTERS}
    parts = [
        f"{name} drops {count} ({remedies[name]} keeps them)"
        for name, count in count_dropped(tasks).items()
    ]
    if not parts:
        return "tasks: the model has none; accept that with tasks.allow_empty: true"
    return (
        f"tasks: none of {len(tasks)} is left: {', '.join(parts)}; "
        "or accept it with tasks.allow_empty: true"
    )
