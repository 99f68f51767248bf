"""Where wrong schedules are kept, with what it takes to see that they are wrong."""

import json
import os
import re
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

import tvm

from autopipe.measure.check import SEED
from autopipe.pipeline.canonical import pretty

_SCRIPT: Final = '''\
"""Shows that a schedule computes something else than its workload: python reproduce.py.

record.json says who made the schedule, how it is made again, and what was found.
"""

import json
import sys
from pathlib import Path

import tvm

from autopipe.compiler.target import tvm_target
from autopipe.measure.check import WrongAnswer, checked
from autopipe.measure.timing import use_threads

here = Path(__file__).parent
record = json.loads((here / "record.json").read_text(encoding="utf-8"))
workload, scheduled = (
    tvm.ir.load_json((here / name).read_text(encoding="utf-8"))
    for name in ("workload.json", "scheduled.json")
)
use_threads(record["target"]["num_cores"])
try:
    checked(workload, scheduled, tvm_target(record["target"]))
except WrongAnswer as error:
    sys.exit(f"{record['task']}, {record['engine']} on {record['implementation']}: {error}")
print("the schedule agrees with the plain loops")
'''


class Suspect(NamedTuple):
    """A schedule that may win a task."""

    task: str
    """Name of the task; for people."""
    engine: str
    implementation: str
    schedule: str
    """As `replay` reads it."""
    workload: tvm.IRModule
    scheduled: tvm.IRModule


@dataclass(frozen=True, slots=True)
class Quarantine:
    """A folder of wrong schedules."""

    folder: Path
    target: Mapping[str, object]
    """The resolved facts of `Facet.TARGET`."""

    def keep(self, name: str, suspect: Suspect, error: str) -> Path:
        """Write everything down under that name; return the folder."""
        place = self.folder / name
        if place.exists():
            return place
        self.folder.mkdir(parents=True, exist_ok=True)
        made = Path(tempfile.mkdtemp(dir=self.folder, prefix=".new-"))
        record = {
            "task": suspect.task, "engine": suspect.engine,
            "implementation": suspect.implementation, "schedule": _plain(suspect.schedule),
            "target": dict(self.target), "seed": SEED, "error": error, **_found(error),
        }  # fmt: skip
        texts = {
            "record.json": pretty(record),
            "workload.json": tvm.ir.save_json(suspect.workload),
            "scheduled.json": tvm.ir.save_json(suspect.scheduled),
            "reproduce.py": _SCRIPT,
        }
        for file, text in texts.items():
            (made / file).write_text(text, encoding="utf-8")
        try:
            os.rename(made, place)  # noqa: PTH104 - must fail where another process was quicker
        except OSError:
            shutil.rmtree(made)
        return place


def _plain(schedule: str) -> object:
    try:
        return json.loads(schedule)
    except ValueError:
        return schedule


def _found(error: str) -> dict[str, object]:
    """Return the case and the difference that an error tells of."""
    found = re.search(r"off by up to (\S+) .* on (\w+) inputs", error)
    if found is None:
        return {"case": None, "difference": None}
    return {"case": found[2], "difference": found[1]}
