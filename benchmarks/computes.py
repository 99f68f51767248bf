"""Any compute, scheduled without measuring: `python benchmarks/computes.py --folder FOLDER`.

Relax operators, computes of `tvm.topi` and some of nobody, at up to three shapes each: the class of
each block, the template, whether it computes the same as the plain loops, and its time against
these loops and against parallel outer loops. `ansor` adds what 64 trials of sketch search find,
where `--only` says. `plan` schedules what was not timed. `page` writes docs/reference/computes.md,
`gate` compares its counts with what is scheduled today and times nothing.
"""

import json
import math
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Any, Final

import computes_page as page
from compute_cases import Case, every_case
from in_parts import asked, parser
from machine import target
from naive import parallel

from autopipe.config.tuning import Measure

PARTS: Final = ("time", "plan", "ansor", "page", "gate")
LIMITS: Final = Measure(run_timeout=20.0, repeat=1, min_repeat=1e-6, clock="loop")
_TRIALS: Final = 64
_TURNS: Final = 4
_MILLISECONDS: Final = 1


def main() -> None:
    """Do the parts that are asked for: `time` and `page`, if none is."""
    options = parser(str(__doc__).partition("\n")[0], PARTS, rounds=1)
    options.add_argument("--only", default="", help="operators whose name contains this")
    options.add_argument(
        "--seconds", type=float, default=math.inf, help="begin no case after so long"
    )
    options.add_argument("--threads", type=int, default=0, help="of kernels, all cores if 0")
    given = options.parse_args()
    parts, _ = asked(given.parts or ["time", "page"], PARTS)
    end = perf_counter() + given.seconds
    with TemporaryDirectory() as passing:
        folder = given.folder or Path(passing)
        folder.mkdir(parents=True, exist_ok=True)
        if "time" in parts:
            _append(folder / "rows.jsonl", given.only, end, partial(_timed, threads=given.threads))
        if "plan" in parts:
            _append(folder / "rows.jsonl", given.only, end, _only_planned)
        if "ansor" in parts:
            _append(folder / "ansor.jsonl", given.only, end, _searched)
        if "page" in parts:
            page.PATH.write_text(
                page.text(_read(folder / "rows.jsonl"), _read(folder / "ansor.jsonl"))
            )
    if "gate" in parts:
        _gate(given.only)


def _read(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def _append(file: Path, only: str, end: float, row: Any) -> None:  # noqa: ANN401
    """Append a row for each case that has none."""
    done = {(one["op"], one["label"]) for one in _read(file)}
    with file.open("a", encoding="utf-8") as out:
        for case in every_case(only):
            if (case.op, case.label) not in done and perf_counter() < end:
                found = {"op": case.op, "label": case.label, **row(case)}
                print(json.dumps(found), file=out, flush=True)


def _timed(case: Case, threads: int) -> dict[str, object]:
    """Schedule a function for all cores, compare it with its loops, and time it on threads."""
    from autopipe.measure.local import Local
    from autopipe.measure.timing import use_threads

    if case.refused:
        return {"refused": case.refused}
    here = target()
    cores = threads or int(str(here["num_cores"]))
    use_threads(cores)
    found, module, ours, conditions = _planned(case, here)
    local = Local(conditions.target, cores, LIMITS)
    (checked,) = local.measure([partial(_checked, module, ours, conditions)], rivals=False)
    local.close()
    if checked.error:
        return {**found, "wrong": checked.error}
    modules = {"loops": case.module, "parallel": parallel(case.module), "ours": ours}
    return {**found, "threads": cores, **_in_turn(modules, conditions.target)}


def _only_planned(case: Case) -> dict[str, object]:
    """Schedule a function, and no more."""
    return {"refused": case.refused} if case.refused else _planned(case, target())[0]


def _in_turn(modules: Mapping[str, Any], goal: Any) -> dict[str, float]:  # noqa: ANN401
    """Return the least time of each of some versions of a function, in seconds."""
    import tvm

    from autopipe.compiler.graph import elementary
    from autopipe.compiler.walls import gate
    from autopipe.measure.timing import arguments

    passed = arguments(modules["loops"])
    built = {}
    for name, module in modules.items():
        function = module["main"].with_attr("global_symbol", "main")
        built[name] = gate.kernel(elementary.expand(tvm.IRModule({"main": function})), goal)
    least = dict.fromkeys(modules, math.inf)
    for _ in range(_TURNS):
        for name, library in built.items():
            library["main"](*passed)
            clock = library.time_evaluator("main", tvm.cpu(), 1, 3, min_repeat_ms=_MILLISECONDS)
            least[name] = min(least[name], *map(float, clock(*passed).results))
    return least


def _planned(case: Case, here: Any) -> tuple[dict[str, Any], Any, Any, Any]:  # noqa: ANN401
    """Return what a row says of a schedule; the function; its schedule; what that is for."""
    from autopipe.compiler.graph import elementary
    from autopipe.schedules.analysis.classes import classify
    from autopipe.schedules.conditions import Conditions
    from autopipe.schedules.engines.fallback import fall

    conditions = Conditions.of(here, fast_algorithms=True)
    module = elementary.mark(case.module)
    began = perf_counter()
    fallback = fall(("static", "default"), module, conditions)
    seconds = perf_counter() - began
    sizes = [[*map(int, param.shape)] for param in case.module["main"].params]
    found = {
        "engine": fallback.engine,
        "template": _template(fallback),
        "classes": [str(block.kind) for block in classify(case.module)],
        "bytes": 4 * sum(map(math.prod, sizes)),
        "seconds": round(seconds, 4),
    }
    return found, module, fallback.planned.module if fallback.planned else module, conditions


def _searched(case: Case) -> dict[str, object]:
    """Have sketch search tune a function."""
    import autopipe
    from autopipe.errors import AutopipeError

    if case.refused:
        return {"refused": case.refused}
    try:
        found = autopipe.auto_schedule(case.module, trials=_TRIALS, engines="ansor")
    except AutopipeError as error:
        return {"refused": str(error)}
    return {"ansor": found.seconds}


def _checked(workload: Any, scheduled: Any, conditions: Any) -> Any:  # noqa: ANN401
    """Return the schedule if it computes the same as the loops; called in a child."""
    from autopipe.measure.check import checked

    return checked(workload, scheduled, conditions.target)


def _template(fallback: Any) -> str:  # noqa: ANN401
    document = json.loads(fallback.planned.schedule) if fallback.planned else None
    if not isinstance(document, dict):
        return "-"
    if document["template"] != "sequence":
        return str(document["template"])
    parts = [str(part["template"]) for part in document["knobs"]["parts"]]
    return " + ".join(dict.fromkeys(parts))


def _gate(only: str) -> None:
    """Exit with 1 where fewer functions have a schedule than the page says."""
    counts: Counter[str] = Counter()
    here = target()
    for case in _known(every_case(only)):
        try:
            found, *_ = _planned(case, here)
        except Exception as error:  # noqa: BLE001 - whatever it is, it counts
            print(f"{case.op} {case.label}: {error}")
            counts["aborted"] += 1
            continue
        counts[found["engine"]] += 1
    promised = page.promised(page.PATH.read_text())
    print(f"{dict(counts)}; the page says {promised}")
    lost = counts["static"] < promised["static"] and not only
    if lost or counts["aborted"]:
        sys.exit("fewer functions are scheduled than docs/reference/computes.md says")


def _known(cases: Iterator[Case]) -> Sequence[Case]:
    return [case for case in cases if not case.refused]


if __name__ == "__main__":
    main()
