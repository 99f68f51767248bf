"""The summary of a run in a few lines below its last one."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from autopipe.pipeline.events import Event, Measured, RunFinished, StageFinished, Tuned
from autopipe.report.escape import escape_text
from autopipe.report.units import format_count, format_spread
from autopipe.report.wording import describe_event, format_row

_NAMES: Final = ("latency", "throughput", "tuned", "accuracy")


class RunSummary:
    """Collects the summary of a run from its events."""

    def __init__(self) -> None:
        self._lines: dict[str, str] = {}

    def after(self, event: Event) -> Sequence[str]:
        """Record an event; return the summary after the last event, otherwise no lines."""
        match event:
            case Measured(document=document) if "ours" in document:
                self._lines |= _summarize_latency(document)
            case Tuned():
                self._lines["tuned"] = describe_event(event).partition("tuned")[2].strip()
            case StageFinished(stage="verify", summary=summary):
                self._lines["accuracy"] = escape_text(summary)
            case RunFinished():
                lines, self._lines = self._lines, {}
                if event.exit_code == 0 and lines.keys() & {"latency", "accuracy"}:
                    return [format_row(name, lines[name]) for name in _NAMES if name in lines]
            case _:
                pass
        return ()


def _tell_doubt(comparison: Mapping[str, Any]) -> str:
    return ", inconclusive" if comparison["verdict"] == "inconclusive" else ""


def _summarize_latency(document: Mapping[str, Any]) -> dict[str, str]:
    """Format latency and throughput from the document of the stage *benchmark*."""
    ours, comparisons = document["ours"]["latency"], document["comparisons"]
    versions = {competitor["name"]: competitor["version"] for competitor in document["competitors"]}
    comparison_parts = (
        f", {found['ratio']:.2f} of {escape_text(name)} "
        f"{escape_text(versions[name])}{_tell_doubt(found)}"
        for name, found in comparisons.items()
        if name in versions
    )
    spread = format_spread(ours["median"], ours["low"], ours["high"])
    return {
        "latency": f"{spread}{''.join(comparison_parts)}",
        "throughput": f"{format_count(1 / ours['median'])} calls/s, one after the other",
    }
