"""Serial variants of schedules, for kernels so small that a second core costs more than it saves.

To hand work to another core and to wait for it takes some microseconds, and then half of the result
lies in the other core's cache. So the number of threads is a knob of every template: a record has
`"threads": 1` beside the other knobs where all loops run on the core that calls the kernel. Nothing
is estimated: the fastest setting of a small kernel is timed with threads and without.
"""

import json
from collections.abc import Mapping

import tvm
import tvm_ffi
from tvm.tirx import For, ForKind

from autopipe import foreign
from autopipe.traces.reading import THREADS


def remove_threads(module: tvm.IRModule) -> tvm.IRModule | None:
    """Return a scheduled module with the parallel loops of `main` made serial; None without any."""
    parallel_loops = 0

    def alone(loop: For) -> For:
        nonlocal parallel_loops
        if loop.kind != ForKind.PARALLEL:
            return loop
        parallel_loops += 1
        return For(
            loop.loop_var, loop.min, loop.extent, ForKind.SERIAL, loop.body, None, loop.annotations
        )

    main = tvm_ffi.structural_map(module["main"], (For, alone))
    return tvm.IRModule({"main": main}) if parallel_loops else None


def is_setting(schedule: str) -> bool:
    """Tell whether a schedule is a setting of a template with one thread."""
    return THREADS in (_parse_knobs(schedule) or {})


def make_setting(schedule: str) -> str | None:
    """Return the setting of a template with one thread; None for a trace or a serial setting."""
    knobs = _parse_knobs(schedule)
    if knobs is None or THREADS in knobs:
        return None
    return json.dumps({**knobs, THREADS: 1}, sort_keys=True)


def _parse_knobs(schedule: str) -> Mapping[str, object] | None:
    """Return the knobs of a template setting; None for a trace."""
    try:
        document = foreign.parse(schedule)
    except ValueError:
        return None
    return document if isinstance(document, dict) else None
