"""Databases of MetaSchedule, as seeds: `python -m autopipe.records.metaschedule` in a child.

A line that TVM cannot read may end the process, so each workload is read in a fork of it.
"""

import base64
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from autopipe import foreign
from autopipe.artifacts.numbers import SLOWEST
from autopipe.errors import ConfigError
from autopipe.processes.call import run_module, serve_request
from autopipe.records import fields, lines
from autopipe.records.about import WorkloadInfo
from autopipe.records.left_out import LeftOut
from autopipe.records.store import RecordDetails
from autopipe.traces import reading

if TYPE_CHECKING:
    import tvm

WORKLOADS: Final = "database_workload.json"
TRIALS: Final = "database_tuning_record.json"

_BEST: Final = 16
"""Records that are read of a workload, the fastest."""

_HEADER: Final = 8
"""Bytes of the length prefix of a module."""

_COMPARED: Final = ("kind", "mcpu", "mattr", "mtriple", "num-cores", "arch")
"""Target attributes that must be equal; the rest follows from these."""


@dataclass(frozen=True, slots=True)
class Database:
    """What a database has for us."""

    found: tuple[RecordDetails, ...]
    left_out: Mapping[str, int]
    """How many records were left out, by why."""


def read_database(folder: Path, target: Mapping[str, Any] | None) -> Database:
    """Read a JSONDatabase: the fastest records for exactly this target, or this machine.

    Their device and versions are not known, so they seed searches and never win. Raises ConfigError
    if it is none, and StageError if TVM cannot be loaded.
    """
    for name in (WORKLOADS, TRIALS):
        if not (folder / name).is_file():
            raise ConfigError(f"{folder}: no MetaSchedule database, it has no {name}")
    answer = run_module(__name__, {"folder": os.fspath(folder.absolute()), "target": target})
    records = [_parse_details(row) for row in answer["records"]]
    return Database(tuple(records), answer["left_out"])


def _parse_details(answer: Mapping[str, Any]) -> RecordDetails:
    record, platform = (
        fields.parse_record(answer["record"]),
        fields.parse_platform(answer["platform"]),
    )
    return RecordDetails(
        0, record, platform, answer["identity"], WorkloadInfo.parse(answer["about"]), None
    )


def _read_in_child(request: Mapping[str, Any]) -> dict[str, object]:
    """Read the database here, in a process that may end."""
    from tvm.target import codegen

    folder = Path(request["folder"])
    target = request["target"] or {
        "kind": "llvm", "mcpu": str(codegen.llvm_get_system_cpu()),
        "num-cores": len(os.sched_getaffinity(0)),
    }  # fmt: skip
    left_out = LeftOut()
    modules = _read_modules(folder / WORKLOADS)
    trials = _read_fastest_trials(folder / TRIALS, len(modules), target, left_out)
    modified = datetime.fromtimestamp((folder / TRIALS).stat().st_mtime, UTC)
    timestamp = modified.isoformat(timespec="seconds")
    records: list[object] = []
    for index, some in sorted(trials.items()):
        records += _replay_workload(modules[index], some, timestamp, left_out)
    return {"records": records, "left_out": left_out.counts()}


def _read_modules(path: Path) -> list[str | None]:
    """Return the module of each line as JSON, None for a line that is damaged."""
    modules: list[str | None] = []
    for line in lines.read_lines(path):
        try:
            _, payload = foreign.parse(line or b"")
            modules.append(base64.b64decode(payload, validate=True)[_HEADER:].decode())
        except (ValueError, TypeError):
            modules.append(None)
    return modules


def _read_fastest_trials(
    path: Path, workloads: int, target: Mapping[str, Any], left_out: LeftOut
) -> dict[int, list[tuple[list[float], str, dict[str, Any]]]]:
    """Return the fastest times, traces and targets by index of the workload."""
    fastest: dict[int, list[tuple[list[float], str, dict[str, Any]]]] = {}
    for line in lines.read_lines(path):
        if line is not None and not line.strip():
            continue
        try:
            index, (trace, seconds, made_for, *_) = foreign.parse(line or b"")
            times = list(fields.parse_times(seconds))
            if type(index) is not int or not 0 <= index < workloads:
                left_out.add("damaged")
            elif not times or not all(0 < value < SLOWEST for value in times):
                left_out.add("failed trials")
            elif not _is_same_target(made_for, target):
                left_out.add(f"for another target: {_format_target(made_for)}")
            else:
                text = json.dumps(trace)
                reading.check_schedule(text)
                entries = [*fastest.get(index, ()), (times, text, made_for)]
                fastest[index] = sorted(entries, key=_compute_mean_time)[:_BEST]
        except reading.Forbidden as error:
            left_out.add(f"a trace of workload {index} is refused: {error}")
        except (ValueError, TypeError, AttributeError):
            left_out.add("damaged")
    return fastest


def _compute_mean_time(trial: tuple[list[float], str, dict[str, Any]]) -> float:
    return sum(trial[0]) / len(trial[0])


def _is_same_target(left: Mapping[str, Any], right: Mapping[str, Any]) -> bool:
    """Tell whether two targets are equal, up to a triple that only one of them has."""
    return all(
        _normalize_attribute(left, name) == _normalize_attribute(right, name)
        for name in _COMPARED
        if name != "mtriple" or (name in left and name in right)
    )


def _normalize_attribute(target: Mapping[str, Any], name: str) -> object:
    value = target.get(name)
    return sorted(value) if isinstance(value, list) else value or None


def _format_target(target: Mapping[str, Any]) -> str:
    return " ".join(str(target[name]) for name in _COMPARED if target.get(name))


def _replay_workload(
    module: str | None,
    trials: Sequence[tuple[list[float], str, dict[str, Any]]],
    timestamp: str,
    left_out: LeftOut,
) -> list[object]:
    """Return the records of one workload with applicable traces."""
    from autopipe.processes.contained import Child, Failed

    if module is None:
        left_out.add("damaged workload", count=len(trials))
        return []
    with Child(lambda: _replay_traces) as child:
        try:
            answer = child.ask([module, [trace for _, trace, _ in trials]])
        except Failed as error:
            left_out.add(f"TVM cannot read the workload: {error}", count=len(trials))
            return []
    records: list[object] = []
    for (times, _, target), trace in zip(trials, answer["traces"], strict=True):
        if trace is None:
            left_out.add("the trace does not apply")
            continue
        record = {
            "workload": answer["hash"], "engine": "ansor", "implementation": "direct",
            "schedule": trace, "seconds": times, "error": None, "cut": False,
            "measured": timestamp, "session": "imported",
        }  # fmt: skip
        records.append(
            {"record": record, "platform": _describe_platform(target, module)}
            | {name: answer[name] for name in ("identity", "about")}
        )
    return records


def _describe_platform(target: Mapping[str, Any], module: str) -> dict[str, str]:
    """Build the platform of a record: its target, on an unknown device."""
    attributes = {
        name: value for name, value in target.items() if name not in {"keys", "tag"} and value
    }
    tvm_version = _read_tvm_version(module)
    parts = {
        "target": attributes,
        "versions": {"tvm": tvm_version},
        "device": {"imported": "unknown"},
    }
    return {
        name: json.dumps(part, sort_keys=True, separators=(",", ":"))
        for name, part in parts.items()
    }


def _read_tvm_version(module: str) -> str:
    """Read the version of TVM that wrote a module, or `unknown`."""
    try:
        version = json.loads(module)["metadata"]["tvm_version"]
    except (ValueError, LookupError, TypeError, RecursionError):
        version = None
    return version if isinstance(version, str) else "unknown"


def _replay_traces(request: tuple[str, list[str]]) -> dict[str, object]:
    """Recompute the hash of a workload, and apply its traces; null for those that do not fit."""
    import tvm

    from autopipe.compiler.tasks import make_workload
    from autopipe.records.identity import digest_module

    text, traces = request
    workload = make_workload(tvm.ir.load_json(text)["main"])
    module = str(tvm.ir.save_json(workload.module))
    about = WorkloadInfo.of_module(module)
    return {
        "hash": workload.identity, "identity": digest_module(module),
        "about": about and about.text(),
        "traces": [_apply_trace(workload.module, trace) for trace in traces],
    }  # fmt: skip


def _apply_trace(module: "tvm.IRModule", trace: str) -> str | None:
    from tvm.s_tir import Schedule
    from tvm.s_tir.schedule import Trace

    schedule = Schedule(module, debug_mask="none", error_render_level="none")
    try:
        Trace.apply_json_to_schedule(reading.read_trace(trace).json(), schedule)
    except (reading.Forbidden, RuntimeError, ValueError, TypeError, LookupError):
        return None
    return json.dumps(schedule.trace.as_json(), default=lambda number: number.value)


if __name__ == "__main__":
    serve_request(_read_in_child)
