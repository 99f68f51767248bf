"""One run of a profile as Chrome trace events, for Perfetto and speedscope."""

from collections.abc import Iterator
from typing import Any

from autopipe.artifacts.model_nodes import name_kernel
from autopipe.profiling.profile import Profile

_MICROSECONDS = 1e6


def list_trace_events(profile: Profile) -> dict[str, Any]:
    """Return the calls of one run in their order, as complete events of one thread."""
    return {"displayTimeUnit": "ns", "traceEvents": list(_list_events(profile))}


def _list_events(profile: Profile) -> Iterator[dict[str, Any]]:
    for name, text in (("process_name", "autopipe"), ("thread_name", profile.library)):
        yield {"name": name, "ph": "M", "pid": 1, "tid": 1, "args": {"name": text}}
    end = 0.0
    for call in profile.calls:
        start = max(call.start, end)  # a quartile may be longer than in this run
        end = start + call.seconds
        yield {
            "name": name_kernel(call.symbol), "ph": "X",
            "cat": "kernel" if call.kernel else "builtin",
            "ts": start * _MICROSECONDS, "dur": call.seconds * _MICROSECONDS, "pid": 1, "tid": 1,
            "args": {
                "nodes": list(call.nodes), "added": call.added, "flops": call.flops,
                "bytes": call.bytes, "shapes": [list(shape) for shape in call.shapes],
            },
        }  # fmt: skip
