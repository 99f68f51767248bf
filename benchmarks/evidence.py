"""What each part of tuning decides: `python benchmarks/evidence.py PIPELINES`.

Each pipeline is tuned once (`--budget 'trials: 128, time: 60s'`), and all evidence about its tasks
is kept. Winners are then picked again without the evidence of one part: `repeats` of the fastest,
and `plain` loops. A cell says of how many tasks the winner changes, and by how much the time of all
kernels grows, by the repeats of both where there are any. *Seconds* are those of the trials of
plain loops, of the comparison inside the model, of the repeats, and of all steps after the search,
checks included.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from time import perf_counter
from typing import Any, Final

from machine import target

import autopipe

BUDGET: Final = "trials: 128, time: 60s"

PLAIN_ENGINES: Final = ("serial", "loops", "parallel_loops")

PARTS: Final[Mapping[str, Callable[[Any], bool]]] = {
    "repeats": lambda one: one.place == "repeat",
    "plain": lambda one: one.proposal.by.engine in PLAIN_ENGINES,
}
"""Whether evidence is of a part."""


STEPS: Final = ("measure_extras", "in_model", "measure_repeats", "decide_tasks")
"""Steps after the search whose seconds are printed."""


def main() -> None:
    """Tune all pipelines, or one of them in this process."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("pipelines", nargs="+", type=Path)
    parser.add_argument("--budget", default=BUDGET, help="of tuning, as in a pipeline file")
    parser.add_argument("--one", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one is not None:
        print(json.dumps(tune(options.pipelines[0], options.one, options.budget)))
        return
    print("| pipeline | tasks | seconds | " + " | ".join(PARTS) + " |")
    print("|---" * (3 + len(PARTS)) + "|")
    cores = str(len(os.sched_getaffinity(0)))
    environment = {**os.environ, "TVM_NUM_THREADS": cores, "OPENBLAS_NUM_THREADS": "1"}
    for path in options.pipelines:
        with tempfile.TemporaryDirectory() as folder:
            done = subprocess.run(
                [sys.executable, __file__, path, "--one", folder, "--budget", options.budget],
                stdout=subprocess.PIPE, check=True, env=environment, text=True,
            )  # fmt: skip
        print(_row(path.stem, json.loads(done.stdout.splitlines()[-1])), flush=True)


def tune(path: Path, folder: Path, budget: str) -> dict[str, Any]:
    """Tune one pipeline as its stage does; return what winners change without each part."""
    from autopipe.config.load import load
    from autopipe.environment.facet import Facet
    from autopipe.pipeline.stage import Context
    from autopipe.stages.tune import TuneStage
    from autopipe.tuning import run
    from autopipe.tuning.decision import decide

    found = autopipe.run(path, store=folder / "store", until="tasks")
    stage = TuneStage.of(load(path, (f"tuning.budget={{{budget}}}",)), path.parent)
    assert stage is not None  # noqa: S101 -- it has a budget
    kept: list[tuple[int, Any, Sequence[Any]]] = []
    seconds: dict[str, float] = {}
    steps: Any = decide
    compare = steps.ModelComparison.compare

    def keep(comparison: Any, states: Sequence[Any]) -> Any:  # noqa: ANN401 -- as it is called
        decided = compare(comparison, states)
        journal = comparison.setup.checks.journal
        kept.extend((s.task.calls, s.untuned, journal.evidence(s)) for s in states)
        return decided

    steps.ModelComparison.compare = _timed(keep, "in_model", seconds)
    for name in ("measure_extras", "measure_repeats"):
        setattr(steps, name, _timed(getattr(steps, name), name, seconds))
    whole: Any = run
    whole.decide_tasks = _timed(decide.decide_tasks, "decide_tasks", seconds)
    for name in ("out", "work"):
        (folder / name).mkdir()
    facts: dict[Facet, Mapping[str, object]] = {facet: {} for facet in stage.reads}
    facts[Facet.TARGET] = target()
    inputs = {name: found[name].path for name in stage.needs if name in found}
    stage.run(
        Context(
            inputs=inputs, facts=facts, out=folder / "out", work=folder / "work",
            records=folder / "records.sqlite", emit=lambda _: None,
        )
    )  # fmt: skip
    parts = {name: _compare(kept, part) for name, part in PARTS.items()}
    return {"tasks": len(kept), "seconds": seconds, "parts": parts}


def _timed(step: Callable[..., Any], name: str, seconds: dict[str, float]) -> Callable[..., Any]:
    def run(*given: Any, **named: Any) -> Any:  # noqa: ANN401 -- as the step is called
        begun = perf_counter()
        try:
            return step(*given, **named)
        finally:
            seconds[name] = seconds.get(name, 0.0) + perf_counter() - begun

    return run


def _compare(
    kept: Sequence[tuple[int, Any, Sequence[Any]]], part: Callable[[Any], bool]
) -> tuple[int, float]:
    """Return of how many tasks the winner changes, and how much more all kernels take then."""
    from autopipe.tuning.winner import pick_winner

    changed, before, after = 0, 0.0, 0.0
    for calls, untuned, evidence in kept:
        rest = [one for one in evidence if not part(one)]
        old, new = (pick_winner(some, untuned=untuned) for some in (evidence, rest))
        if old is None or new is None:
            continue
        changed += old.proposal.body != new.proposal.body
        before += calls * _seconds(old.proposal, evidence)
        after += calls * _seconds(new.proposal, evidence)
    return changed, after / before - 1 if before else 0.0


def _seconds(proposal: Any, evidence: Sequence[Any]) -> float:  # noqa: ANN401 -- loaded late
    """Return the seconds of a call by the repeats of a schedule, or else by its trial."""
    for place in ("repeat", "trial"):
        if times := list(_times(proposal, evidence, place)):
            return statistics.median(times)
    return 0.0


def _times(proposal: Any, evidence: Sequence[Any], place: str) -> Iterator[float]:  # noqa: ANN401
    for one in evidence:
        if one.proposal == proposal and one.place == place:
            yield from one.times


def _row(name: str, found: Mapping[str, Any]) -> str:
    seconds = ", ".join(f"{found['seconds'].get(step, 0):.1f}" for step in STEPS)
    cells = " | ".join(f"{count}, {100 * more:+.2f} %" for count, more in found["parts"].values())
    return f"| {name} | {found['tasks']} | {seconds} | {cells} |"


if __name__ == "__main__":
    main()
