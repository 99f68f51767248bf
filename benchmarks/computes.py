"""Any compute, scheduled without measuring: `python benchmarks/computes.py --folder FOLDER`.

Relax operators, computes of `tvm.topi` and custom ones, at up to three shapes each: the class of
each block, the template, whether it computes the same as the plain loops, and its time against
these loops and against parallel outer loops. Part `build` schedules, checks and compiles, one child
a function, and can go on while others work. `ansor` adds what 64 trials of sketch search find,
where `--only` says. `time` runs what was built, in some minutes that want a quiet machine. `page`
writes docs/reference/computes.md, `gate` compares its counts with what is scheduled today and times
nothing.
"""

import json
import math
import os
import sys
from argparse import Namespace
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter, process_time
from typing import Any, Final

import compute_builds as builds
import computes_page as page
from compute_builds import Row
from compute_cases import Case, every_case
from in_parts import asked, parser
from machine import parallel, target

PARTS: Final = ("build", "ansor", "time", "page", "gate")
_TRIALS: Final = 64
_TURNS: Final = 4
_HERE: Final = "On a machine that others used at the same time."


def main() -> None:
    """Do the parts that are asked for: `build`, `time` and `page`, if none is."""
    options = parser(str(__doc__).partition("\n")[0], PARTS, rounds=_TURNS)
    options.add_argument("--only", default="", help="operators whose name contains this")
    options.add_argument("--share", default="0/1", help="of the cases: 1/2 is the second half")
    options.add_argument("--conditions", default=_HERE, help="how quiet the machine was")
    given = options.parse_args()
    parts, _ = asked(given.parts or ["build", "time", "page"], PARTS)
    end = perf_counter() + given.seconds
    with TemporaryDirectory() as passing:
        folder = given.folder or Path(passing)
        folder.mkdir(parents=True, exist_ok=True)
        if "build" in parts:
            _each(folder, "built", given, end, _built)
        if "ansor" in parts:
            _each(folder, "ansor", given, end, _searched)
        if "time" in parts:
            _time(folder, given.rounds, end)
        if "page" in parts:
            built, times, searched = (
                builds.rows(folder / f"{name}.jsonl") for name in ("built", "times", "ansor")
            )
            page.PATH.write_text(page.text(built, times, searched, given.conditions))
    if "gate" in parts:
        _gate(given.only)


def _each(
    folder: Path,
    name: str,
    given: Namespace,
    end: float,
    make: Callable[[Path, Case], Row],
) -> None:
    """Append a row for each case that has none; each is made in a child."""
    file = folder / f"{name}.jsonl"
    done = {(one["op"], one["label"]) for one in builds.rows(file)}
    share, shares = map(int, given.share.split("/"))
    cases = every_case(given.only)
    if name == "ansor":  # there is no time for all, so the order is arbitrary
        cases = iter(sorted(cases, key=lambda case: builds.stem(_name(case))))
    for number, case in enumerate(cases):
        ours = number % shares == share and (case.op, case.label) not in done
        if ours and perf_counter() < end:
            known = {"op": case.op, "label": case.label}
            row = {"refused": case.refused} if case.refused else None
            builds.append(file, known | (row or builds.alone(partial(make, folder, case))))


def _built(folder: Path, case: Case) -> Row:
    """Schedule a function, compare it with its loops, and compile both; called in a child."""
    from autopipe.errors import AutopipeError
    from autopipe.measure.check import checked

    found, module, ours, conditions = _planned(case, target())
    try:
        checked(module, ours, conditions.target)
    except AutopipeError as error:
        return {**found, "wrong": f"{type(error).__name__}: {error}"}
    builds.save(folder, case)
    versions = {"loops": case.module, "parallel": case.module, "ours": ours}
    if not all(one == "opaque" for one in found["classes"]):  # those are as parallel as they are
        versions["parallel"] = parallel(case.module)
    builds.library(folder / f"{builds.stem(_name(case))}.so", versions, conditions.target)
    return found


def _name(case: Case) -> Row:
    return {"op": case.op, "label": case.label}


def _searched(folder: Path, case: Case) -> Row:
    """Tune a function by sketch search, and compile the winner; called in a child."""
    import autopipe
    from autopipe.errors import AutopipeError
    from autopipe.schedules.conditions import Conditions

    begun = perf_counter()
    try:
        found = autopipe.auto_schedule(case.module, trials=_TRIALS, engines="ansor")
    except AutopipeError as error:
        return {"none": str(error)}
    goal = Conditions.of(target(), fast_algorithms=True).target
    file = folder / f"{builds.stem(_name(case))}-ansor.so"
    builds.library(file, {"ansor": found.module}, goal)
    return {"took": round(perf_counter() - begun, 1), "by": found.engine}


def _time(folder: Path, turns: int, end: float) -> None:
    """Time what was built and was not timed since: all versions of a function in turn."""
    from autopipe.measure.timing import use_threads

    cores = int(str(target()["num_cores"]))
    use_threads(cores)
    file = folder / "times.jsonl"
    done = {(one["op"], one["label"]) for one in builds.rows(file)}
    for row in builds.rows(folder / "built.jsonl"):
        built = (folder / f"{builds.stem(row)}.so").exists()
        if built and (row["op"], row["label"]) not in done and perf_counter() < end:
            named = {"op": row["op"], "label": row["label"], "threads": cores}
            timed = builds.in_turn(folder, row, turns)
            builds.append(file, named | timed | {"roof": _roof(folder, row)})


def _roof(folder: Path, row: Row) -> float:
    """Return the seconds that a function takes at best here."""
    from autopipe.api.scheduled import build_single_task
    from autopipe.compiler.module_io import load_module
    from autopipe.schedules.conditions import Conditions
    from autopipe.schedules.roofline import lower_bound_ns

    task = build_single_task(load_module(folder / f"{builds.stem(row)}.json"))
    hardware = Conditions.of(target(), fast_algorithms=True).hardware
    return 1e-9 * lower_bound_ns(task, hardware)


def _planned(case: Case, here: Any) -> tuple[Row, Any, Any, Any]:  # noqa: ANN401
    """Return the row of a schedule, the module, the scheduled module, and the conditions."""
    from autopipe.api.compute import to_declared_module
    from autopipe.compiler.graph import elementary
    from autopipe.schedules.analysis.classes import classify_blocks
    from autopipe.schedules.conditions import Conditions
    from autopipe.schedules.engines.fallback import choose_fallback

    conditions = Conditions.of(here, fast_algorithms=True)
    module = elementary.mark_inexact(to_declared_module(case.module["main"]))
    began = process_time()
    fallback = choose_fallback(("static", "default"), module, conditions)
    seconds = process_time() - began
    sizes = [[*map(int, param.shape)] for param in case.module["main"].params]
    found = {
        "engine": fallback.engine,
        "template": _template(fallback),
        "classes": [str(block.kind) for block in classify_blocks(module)],
        "bytes": 4 * sum(map(math.prod, sizes)),
        "seconds": round(seconds, 4),
    }
    return found, module, fallback.planned.module if fallback.planned else module, conditions


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
    os._exit(0)
