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
"""Repeats work on a task that failed, or was wrong, in a child process: python reproduce.py.

record.json holds the engine, the kind of work, how it ended, and what was found.
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

    def keep(self, name: str, piece: Piece, checked: Checked, conditions: Conditions) -> Path:
        """Write a wrong schedule to a folder of that name; return the folder."""
        findings = {"case": checked.case, "difference": checked.difference, "seed": SEED}
        return self._write_folder(name, piece, conditions, {"how": checked.reason, **findings})

    def failed(self, piece: Piece, error: contained.Failed, conditions: Conditions) -> Path:
        """Write the record of a failed piece of work; return the folder."""
        modules = (piece.workload, piece.scheduled)
        hashes = [
            tvm_ffi.structural_hash(module["main"]) for module in modules if module is not None
        ]
        content = json.dumps([_name_work(piece), hashes], sort_keys=True)
        name = hashlib.sha256(content.encode()).hexdigest()[:16]
        findings = {"how": str(error), "log": error.log.splitlines()}
        return self._write_folder(name, piece, conditions, findings)

    def _write_folder(
        self, name: str, piece: Piece, conditions: Conditions, findings: Mapping[str, object]
    ) -> Path:
        place = self.folder / name
        if place.exists():
            return place
        record = {
            **_name_work(piece), "problem": piece.problem, "target": dict(self.target),
            "fast_algorithms": conditions.fast_algorithms, "seconds": contained.SECONDS,
            "memory": contained.MEMORY, **findings,
        }  # fmt: skip
        modules = {"workload.json": piece.workload, "scheduled.json": piece.scheduled}
        texts = {f: tvm.ir.save_json(module) for f, module in modules.items() if module is not None}
        self.folder.mkdir(parents=True, exist_ok=True)
        new_folder = Path(tempfile.mkdtemp(dir=self.folder, prefix=".new-"))
        for file, text in {**texts, "record.json": pretty(record), "reproduce.py": _SCRIPT}.items():
            (new_folder / file).write_text(text, encoding="utf-8")
        try:
            os.rename(new_folder, place)  # noqa: PTH104 - must fail where another process was quicker
        except OSError:
            shutil.rmtree(new_folder)
        return place


def _name_work(piece: Piece) -> dict[str, str]:
    return {
        "task": piece.task, "doing": piece.doing, "engine": piece.engine,
        "implementation": piece.implementation, "schedule": piece.schedule,
    }  # fmt: skip
