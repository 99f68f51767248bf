"""Time of the commands that should answer at once: `python benchmarks/cached.py pipelines/*.yaml`.

Prints the minimum of several rounds, all commands of a round one after the other: CPU seconds, user
and system time of all processes together, the ratio to importing pydantic, typer and yaml, and
seconds on the clock. `infer` runs the package on zeros. The pipelines must have been run before: a
stage that runs again is named, and the exit code is then 1.
"""

import argparse
import json
import sys
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Final

from turns import Cost, measure_python, run_python, take_turns

IMPORTS: Final = ("-c", "import pydantic, typer, yaml")


def main() -> int:
    """Measure and print; return 1 where a stage ran."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("pipelines", nargs="+")
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        commands = {
            name: partial(measure, words)
            for name, words in list_commands(options.pipelines, Path(folder))
        }
        measured = take_turns(commands, options.rounds)
    repeated = {stage for calls in measured.values() for _, ran in calls for stage in ran}
    imports = min(cost.cpu for cost, _ in measured["imports"])
    for name, calls in measured.items():
        cpu, clock = min(cost.cpu for cost, _ in calls), min(cost.wall for cost, _ in calls)
        print(f"{cpu:6.3f} s CPU, {cpu / imports:4.1f} times the imports, {clock:6.3f} s  {name}")
    if repeated:
        print(f"ran: {', '.join(sorted(repeated))}")
    return int(bool(repeated))


def list_commands(pipelines: list[str], folder: Path) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield the name and the Python arguments of each measured command."""
    autopipe = ("-m", "autopipe")
    yield "imports", IMPORTS
    yield "autopipe --help", (*autopipe, "--help")
    for path in pipelines:
        for words in (("validate",), ("plan",), ("run", "--json")):
            yield f"autopipe {words[0]} {path}", (*autopipe, *words, path)
        package = find_package(path)
        if package is not None:
            inputs = write_zeros(package, folder / Path(path).stem)
            yield f"autopipe infer {package}", (*autopipe, "infer", package, "--input", inputs)


def find_package(pipeline: str) -> str | None:
    """Return the package of a pipeline, which its run publishes; None where it has none."""
    events = run_python("-m", "autopipe", "run", "--json", pipeline).splitlines()
    package = json.loads(events[-1])["package"]
    return None if package is None else str(package)


def write_zeros(package: str, folder: Path) -> str:
    """Write zeros for each input of a package; return the path of the file."""
    import numpy as np

    inputs = json.loads(run_python("-m", "autopipe", "inspect", package, "--json"))["inputs"]
    arrays = {one["name"]: np.zeros(one["shape"], one["dtype"]) for one in inputs}
    path = folder.with_suffix(".npz")
    np.savez(path, allow_pickle=False, **arrays)
    return str(path)


def measure(words: tuple[str, ...]) -> tuple[Cost, tuple[str, ...]]:
    """Return the cost of one call, and the stages that ran."""
    cost, output = measure_python(*words)
    events = map(json.loads, output.splitlines()) if "--json" in words else ()
    return cost, tuple(str(e["stage"]) for e in events if e["event"] == "stage_started")


if __name__ == "__main__":
    sys.exit(main())
