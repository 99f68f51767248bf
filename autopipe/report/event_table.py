"""The table below the line of an event."""

from collections.abc import Iterable

from autopipe.pipeline.events import BuildsFinished, Event, PassTimes, TuningHeadroom
from autopipe.report.builds import list_builds
from autopipe.report.headroom import list_headroom
from autopipe.report.pass_times import list_pass_times


def list_event_lines(event: Event) -> Iterable[str]:
    """List the lines of an event's table; most events have none."""
    if isinstance(event, BuildsFinished):
        return list_builds(event)
    if isinstance(event, TuningHeadroom):
        return list_headroom(event.tasks)
    return list_pass_times(event) if isinstance(event, PassTimes) else ()
