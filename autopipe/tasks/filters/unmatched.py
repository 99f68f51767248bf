"""Report patterns of the pipeline file that match no task, which are probably mistakes."""

from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase

from autopipe.config.match import Match
from autopipe.config.schedules import Schedules
from autopipe.config.suggestion import find_closest
from autopipe.config.tasks import Tasks
from autopipe.tasks.matching import is_match
from autopipe.tasks.task import Task


def list_unmatched(tasks: Sequence[Task], section: Tasks) -> Iterator[str]:
    """Yield a sentence for each pattern of `include` and `exclude` that matches no task."""
    for field, patterns in (("include", section.include), ("exclude", section.exclude)):
        for position, pattern in enumerate(patterns):
            if pattern != Match() and not any(is_match(pattern, t, t.share) for t in tasks):
                yield (
                    f"tasks.{field}.{position}: {pattern} matches no "
                    f"task{_suggest_pattern(pattern, tasks)}"
                )


def list_idle_rules(tasks: Sequence[Task], section: Schedules) -> Iterator[str]:
    """Yield a sentence for each rule of `schedules` that matches no task of any share."""
    for position, rule in enumerate(section.rules):
        pattern = rule.match
        if not any(is_match(pattern, task, 1.0) for task in tasks):
            yield (
                f"schedules.rules.{position}: {pattern} matches no "
                f"task{_suggest_pattern(pattern, tasks)}"
            )


def _suggest_pattern(pattern: Match, tasks: Sequence[Task]) -> str:
    names = sorted({name for task in tasks for name in task.info.names})
    matching_names = [name for name in names if fnmatchcase(name, pattern.op)]
    if matching_names:
        return f"; none with {', '.join(matching_names)} fits the rest" if pattern.op != "*" else ""
    if suggestion := find_closest(pattern.op, names):
        return f"; did you mean {suggestion}?"
    return f"; the tasks have {', '.join(names)}" if names else ""
