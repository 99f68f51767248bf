"""Task filters: rules that exclude tasks from tuning. The RFC's S2 and `include_simple_task`."""

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
"""Applied in this order; the first reason is reported."""


def apply_filters(tasks: Sequence[Task], section: Tasks) -> list[Task]:
    """Apply all filters; return the tasks, with the reason of each dropped one."""
    filtered_tasks = list(tasks)
    for task_filter in [made for kind in FILTERS if (made := kind.of(section))]:
        kept_tasks = [task for task in filtered_tasks if task.dropped is None]
        reasons = {task.index: task_filter.reason(task, kept_tasks) for task in kept_tasks}
        filtered_tasks = [
            task.model_copy(update={"dropped": f"{task_filter.name}: {reason}"})
            if (reason := reasons.get(task.index))
            else task
            for task in filtered_tasks
        ]
    return filtered_tasks


def count_dropped(tasks: Sequence[Task]) -> dict[str, int]:
    """Count the dropped tasks by filter, in descending order."""
    filter_names = (task.dropped.partition(": ")[0] for task in tasks if task.dropped is not None)
    return dict(Counter(filter_names).most_common())


def explain_no_tasks(tasks: Sequence[Task]) -> str:
    """Format the number of dropped tasks and the remedy of each filter."""
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
