"""Time of the commands that should answer at once: `python benchmarks/cached.py pipelines/*.yaml`.

Prints the minimum of several rounds, all commands of a round one after the other: CPU seconds, user
and system time of all processes together, the ratio to importing pydantic, typer and yaml, and
seconds on the clock. `infer` runs the package on zeros. The pipelines must have been run before: a
stage that runs again is named, and the exit code is then 1.
"""

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

IMPORTS: Final = ("-c", "import pydantic, typer, yaml")


def main() -> int:
    """Measure and print; return 1 where a stage ran."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("pipelines", nargs="+")
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        named = dict(list_commands(options.pipelines, Path(folder)))
        rounds = [{name: measure(words) for name, words in named.items()}
                  for _ in range(options.rounds)]  # fmt: skip
    repeated = {stage for times in rounds for _, _, ran in times.values() for stage in ran}
    imports = min(times["imports"][0] for times in rounds)
    for name in named:
        cpu = min(times[name][0] for times in rounds)
        clock = min(times[name][1] for times in rounds)
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
    events = call("-m", "autopipe", "run", "--json", pipeline).splitlines()
    package = json.loads(events[-1])["package"]
    return None if package is None else str(package)


def write_zeros(package: str, folder: Path) -> str:
    """Write zeros for each input of a package; return the path of the file."""
    import numpy as np

    inputs = json.loads(call("-m", "autopipe", "inspect", package, "--json"))["inputs"]
    arrays = {one["name"]: np.zeros(one["shape"], one["dtype"]) for one in inputs}
    path = folder.with_suffix(".npz")
    np.savez(path, allow_pickle=False, **arrays)
    return str(path)


def measure(words: tuple[str, ...]) -> tuple[float, float, tuple[str, ...]]:
    """Return the CPU seconds of one call, its seconds on the clock, and the stages that ran."""
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    output = call(*words)
    clock, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    events = map(json.loads, output.splitlines()) if "--json" in words else ()
    ran = (str(event["stage"]) for event in events if event["event"] == "stage_started")
    return cpu, clock, tuple(ran)


def call(*words: str) -> str:
    """Run Python with these arguments and return what it prints."""
    return subprocess.run(
        [sys.executable, *words], stdout=subprocess.PIPE, text=True, check=True
    ).stdout


if __name__ == "__main__":
    sys.exit(main())
