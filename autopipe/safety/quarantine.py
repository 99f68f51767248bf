"""Folders of wrong schedules and failures, with scripts that reproduce them."""

import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import tvm
import tvm_ffi

from autopipe.measure.check import SEED
from autopipe.processes import contained
from autopipe.safety.job import Piece
from autopipe.safety.verdict import Checked
from autopipe.schedules.conditions import Conditions
from autopipe.store.canonical import pretty

_SCRIPT: Final = '''\
"""Shows that a schedule computes a wrong result: python reproduce.py.

record.json holds the engine, the schedule, and the error that was found.
"""

import json
import sys
from pathlib import Path

import tvm

from autopipe.compiler.target.target import make_target
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
    checked(workload, scheduled, make_target(record["target"]))
except WrongAnswer as error:
    sys.exit(f"{record['task']}, {record['engine']} on {record['implementation']}: {error}")
print("the schedule agrees with the plain loops")
'''

_AGAIN: Final = '''\
"""Repeats failed work on a task in a child process: python reproduce.py.

record.json holds the engine, the kind of work, how it ended, and the end of its output.
"""

import sys
from pathlib import Path

from autopipe.safety.reproduce import reproduce_failure

sys.exit(reproduce_failure(Path(__file__).parent))
'''


@dataclass(frozen=True, slots=True)
class Quarantine:
    """A folder of wrong schedules, or of failures."""

    folder: Path
    target: Mapping[str, object]
    """The resolved facts of `Facet.TARGET`."""

    def keep(self, name: str, suspect: Piece, checked: Checked) -> Path:
        """Write a wrong schedule to a folder of that name; return the folder."""
        record = {
            "task": suspect.task, "engine": suspect.engine,
            "implementation": suspect.implementation, "schedule": _parse_schedule(suspect.schedule),
            "target": dict(self.target), "seed": SEED, "error": checked.reason,
            "case": checked.case, "difference": checked.difference,
        }  # fmt: skip
        texts = {
            "record.json": pretty(record),
            "workload.json": tvm.ir.save_json(suspect.workload),
            "scheduled.json": tvm.ir.save_json(suspect.candidate),
            "reproduce.py": _SCRIPT,
        }
        return self._write_folder(name, texts)

    def failed(self, piece: Piece, error: contained.Failed, conditions: Conditions) -> Path:
        """Write the record of a failed piece of work; return the folder."""
        modules = {"workload.json": piece.workload, "scheduled.json": piece.scheduled}
        loops = {name: module for name, module in modules.items() if module is not None}
        names = {
            "task": piece.task, "doing": piece.doing, "engine": piece.engine,
            "implementation": piece.implementation, "schedule": piece.schedule,
        }  # fmt: skip
        record = {
            **names, "problem": piece.problem, "target": dict(self.target), "how": str(error),
            "fast_algorithms": conditions.fast_algorithms, "seconds": contained.SECONDS,
            "memory": contained.MEMORY,
            "log": error.log.splitlines(),
        }  # fmt: skip
        hashes = [tvm_ffi.structural_hash(module["main"]) for module in loops.values()]
        name = hashlib.sha256(json.dumps([names, hashes], sort_keys=True).encode()).hexdigest()
        texts = {name: tvm.ir.save_json(module) for name, module in loops.items()}
        return self._write_folder(
            name[:16], {**texts, "record.json": pretty(record), "reproduce.py": _AGAIN}
        )

    def _write_folder(self, name: str, texts: Mapping[str, str]) -> Path:
        place = self.folder / name
        if place.exists():
            return place
        self.folder.mkdir(parents=True, exist_ok=True)
        new_folder = Path(tempfile.mkdtemp(dir=self.folder, prefix=".new-"))
        for file, text in texts.items():
            (new_folder / file).write_text(text, encoding="utf-8")
        try:
            os.rename(new_folder, place)  # noqa: PTH104 - must fail where another process was quicker
        except OSError:
            shutil.rmtree(new_folder)
        return place


def _parse_schedule(schedule: str) -> object:
    try:
        return json.loads(schedule)
    except ValueError:
        return schedule
