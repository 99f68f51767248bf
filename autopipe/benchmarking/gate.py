"""Decides whether the latencies let a build be published."""

from collections.abc import Iterator

from autopipe.benchmarking.latency import Verdict, against
from autopipe.benchmarking.match import Match
from autopipe.config import Gates
from autopipe.errors import GateError, SetupError


def hold(match: Match, gates: Gates) -> Iterator[str]:
    """Check the gate of each rival, and yield what is to be warned about.

    A slowdown that lies beyond its limit only within the spread of the times is a warning.
    Raises GateError for one beyond doubt, SetupError for a rival that could not be timed.
    """
    rivals = {rival.name: rival.latency for rival in match.rivals}
    for name, limit in gates.max_slowdown.items():
        if name not in rivals:
            reason = match.skipped.get(name, f"`benchmark.against` does not list {name!r}")
            raise SetupError(f"gates.max_slowdown.{name} can not be checked: {reason}")
        ratio = match.comparisons[name].ratio
        if ratio <= limit:
            continue
        found = f"the build takes {ratio:.2f} times as long as {name}, allowed is {limit:g}"
        if against(match.ours.latency, rivals[name], limit) is Verdict.SLOWER:
            raise GateError(found)
        yield f"{found}; the spread of the times is too wide to fail it"
