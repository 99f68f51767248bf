"""Builds to compare."""

from collections.abc import Mapping
from dataclasses import replace

from autopipe.comparison.build import Build, BuiltTask, ContenderTime, Time
from autopipe.lock.recognize import FileKind

KNOBS = {"template": "contraction", "version": 2, "knobs": {"rows": 8, "outer": "columns"}}
DECISIONS = {"engine": "autotvm", "implementation": "direct", "schedule": KNOBS, "calls": 2}


def time(median: float) -> Time:
    return Time(median, 0.9 * median, 1.1 * median)


def task(
    name: str = "dense", workload: str = "0f", seconds: float = 1e-3, **decisions: object
) -> BuiltTask:
    return BuiltTask(name, workload, {**DECISIONS, **decisions}, time(seconds))


def latency(
    ours: float, competitor: float = 2.0, version: str = "1.31"
) -> dict[str, ContenderTime]:
    return {
        "onnxruntime": ContenderTime(version, time(competitor)),
        "autopipe": ContenderTime("1", time(ours)),
    }


def build(
    facts: Mapping[str, Mapping[str, object]] | None = None,
    tasks: tuple[BuiltTask, ...] | None = None,
    **fields: object,
) -> Build:
    made = Build(FileKind.LOCK, "demo.lock", "demo", facts or {}, tasks)
    return replace(made, **fields)  # type: ignore[arg-type]
