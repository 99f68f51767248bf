"""Repeats a piece of work that failed, or was wrong, from its record in `failed/` or `wrong/`."""

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from autopipe.compiler.module_io import load_module
from autopipe.processes import contained
from autopipe.safety.job import Piece, can_bound_memory, do
from autopipe.safety.verdict import Checked, Finding
from autopipe.schedules.conditions import Conditions


def reproduce_failure(folder: Path) -> int:
    """Repeat the work of `record.json` of a folder in a child, and print how it ended.

    Returns 1 if it failed, for whatever reason, and 0 if it succeeded.
    """
    record = json.loads((folder / "record.json").read_text(encoding="utf-8"))
    target = record["target"]
    conditions = Conditions.of(target, fast_algorithms=record["fast_algorithms"])
    scheduled_path = folder / "scheduled.json"
    piece = Piece(
        record["doing"], record["task"], load_module(folder / "workload.json"), record["engine"],
        record["implementation"], record["schedule"],
        load_module(scheduled_path) if scheduled_path.exists() else None, record["problem"],
    )  # fmt: skip
    description = f"{piece.task}, {piece.doing} {piece.origin}"
    try:
        complaint = _run_piece_in_child(piece, conditions, record)
    except contained.Failed as error:
        complaint = str(error)
    if complaint:
        sys.stderr.write(f"{description}: {complaint}\n")
        return 1
    sys.stdout.write(f"{description}: it went well this time\n")
    return 0


def _run_piece_in_child(piece: Piece, conditions: Conditions, record: Mapping[str, Any]) -> str:
    """Execute the piece; return the errors of its templates or its result, or "". Raises Failed."""
    is_bounded = can_bound_memory(piece, conditions)
    with contained.Child(
        lambda: lambda _: do(piece, conditions), bounded=is_bounded,
        seconds=record["seconds"], memory=record["memory"],
    ) as child:  # fmt: skip
        answer = child.ask()
    if piece.doing == "checking":
        checked = Checked.of(answer)
        return "" if checked.finding is Finding.RIGHT else str(checked.reason)
    return str(answer["complaint"]) if piece.doing == "planning" else ""
