"""Any compute, scheduled without measuring: `python benchmarks/computes.py`.

Relax operators, at three shapes each: which template serves them, how long
that took, whether it computes the same as the plain loops, and its time against the loops as they
are and against parallel outer loops.
"""

import json
import math
import sys
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from statistics import geometric_mean
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Any

from compute_cases import Case, cases, operators
from in_parts import asked, parser
from machine import target
from naive import parallel

from autopipe.config.tuning import Measure

PARTS = ("time", "table")
_NOISE = 1.1
LIMITS = Measure(run_timeout=20.0, min_repeat=0.02)


def main() -> None:
    """Time what is not timed yet, and print the table."""
    options = parser(str(__doc__).partition("\n")[0], PARTS, rounds=1)
    options.add_argument("--only", default="", help="operators whose name contains this")
    options.add_argument(
        "--seconds", type=float, default=math.inf, help="begin no case after so long"
    )
    given = options.parse_args()
    parts, _ = asked(given.parts, PARTS)
    with TemporaryDirectory() as passing:
        rows = (given.folder or Path(passing)) / "rows.jsonl"
        rows.parent.mkdir(parents=True, exist_ok=True)
        if "time" in parts:
            _time(rows, given.only, perf_counter() + given.seconds)
        if "table" in parts:
            _table([json.loads(line) for line in rows.read_text(encoding="utf-8").splitlines()])


def _time(rows: Path, only: str, end: float) -> None:
    """Append a row for each case that has none."""
    from autopipe.measure.timing import use_threads
    from autopipe.schedules.conditions import Conditions

    here = target()
    cores = int(str(here["num_cores"]))
    use_threads(cores)
    conditions = Conditions.of(here, fast_algorithms=True)
    there = rows.read_text(encoding="utf-8").splitlines() if rows.exists() else []
    done = {(row["op"], row["label"]) for row in map(json.loads, there)}
    with rows.open("a", encoding="utf-8") as out:
        for case in _all_cases(only, out, done):
            if (case.op, case.label) not in done and perf_counter() < end:
                print(json.dumps(_row(case, conditions, cores)), file=out, flush=True)


def _all_cases(only: str, out: Any, done: set[tuple[str, str]]) -> Iterator[Case]:  # noqa: ANN401
    for operator in operators():
        if only in operator.name:
            try:
                yield from cases(operator)
            except Exception as error:  # noqa: BLE001 - TVM refuses, each time with another class
                if (operator.name, "-") not in done:
                    last = str(error).strip().splitlines()[-1]
                    print(
                        json.dumps({"op": operator.name, "label": "-", "refused": last}),
                        file=out,
                        flush=True,
                    )


def _row(case: Case, conditions: Any, cores: int) -> dict[str, object]:  # noqa: ANN401
    """Schedule a function, compare it with its loops, and time it."""
    import tvm

    from autopipe.compiler.graph import elementary
    from autopipe.measure.local import Local
    from autopipe.schedules.engines.fallback import fall

    plain = tvm.IRModule({"main": case.function.with_attr("global_symbol", "main")})
    module = elementary.mark(plain)
    began = perf_counter()
    fallback = fall(("static", "default"), module, conditions)
    seconds = perf_counter() - began
    ours = fallback.planned.module if fallback.planned else module
    local = Local(conditions.target, cores, LIMITS)
    makers = [
        partial(_same, plain),
        partial(parallel, plain),
        partial(_same, ours),
        partial(_checked, module, ours, conditions),
    ]
    loops, outer, found, checked = local.measure(makers, rivals=False)
    local.close()
    return {
        "op": case.op,
        "label": case.label,
        "engine": fallback.engine,
        "template": _template(fallback),
        "seconds": round(seconds, 4),
        "loops": _finite(loops.median),
        "parallel": _finite(outer.median),
        "ours": _finite(found.median),
        "wrong": checked.error,
        "error": found.error or loops.error,
    }


def _same(module: Any) -> Any:  # noqa: ANN401
    return module


def _checked(workload: Any, scheduled: Any, conditions: Any) -> Any:  # noqa: ANN401
    """Return the schedule if it computes the same as the loops; called in a child."""
    from autopipe.measure.check import checked

    return checked(workload, scheduled, conditions.target)


def _template(fallback: Any) -> str:  # noqa: ANN401
    if fallback.planned is None:
        return "-"
    document = json.loads(fallback.planned.schedule)
    return str(document["template"]) if isinstance(document, dict) else "-"


def _finite(seconds: float) -> float | None:
    return seconds if math.isfinite(seconds) else None


def _table(rows: Sequence[dict[str, Any]]) -> None:
    """Print all rows, worst first, and what they come to."""
    timed = [row for row in rows if row.get("ours") and row.get("loops")]
    timed.sort(key=lambda row: min(row["loops"], row.get("parallel") or math.inf) / row["ours"])
    titles = ("operator", "operands", "engine", "template", "scheduled in", "loops", "parallel")
    print(f"| {' | '.join((*titles, 'ours', 'times faster'))} |")
    print("|---" * (len(titles) + 2) + "|")
    for row in timed:
        named = [row["op"], row["label"], row["engine"], row["template"]]
        times = [_us(row[name]) for name in ("loops", "parallel", "ours")]
        cells = [*named, f"{row['seconds'] * 1e3:.0f} ms", *times]
        print(f"| {' | '.join(cells)} | {row['loops'] / row['ours']:.1f} |")
    for row in rows:
        told = row.get("refused") or row.get("wrong") or row.get("error")
        if told:
            print(f"{row['op']} {row['label']}: {told}", file=sys.stderr)
    served = sum(row["engine"] == "static" for row in timed)
    slower = sum(row["ours"] > _NOISE * row["loops"] for row in timed)
    mean = geometric_mean(row["loops"] / row["ours"] for row in timed)
    print(f"\n{len(timed)} functions: {served} by a template, {slower} slower than their loops,")
    print(f"{mean:.1f} times faster in the mean")


def _us(seconds: float | None) -> str:
    return f"{seconds * 1e6:.1f} us" if seconds else ""


if __name__ == "__main__":
    main()
