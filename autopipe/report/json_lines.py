"""Write events as JSON lines for programs."""

from autopipe.pipeline.events import Event
from autopipe.report.escape import escape_json
from autopipe.report.output import Output


class JsonLines:
    """One JSON object a line, in ASCII, and nothing else."""

    def __init__(self, out: Output) -> None:
        self._out = out

    def __call__(self, event: Event, /) -> None:
        """Write the event; `pipeline.events.parse` reads it back."""
        self._out.write(escape_json(event.model_dump_json(ensure_ascii=True)) + "\n")
