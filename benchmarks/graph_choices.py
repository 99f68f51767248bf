"""Other choices for a whole graph than its pipeline file makes: `graph_choices.py PIPELINES`.

Each pipeline is built untuned as it is, and with one choice changed: data in NCHW, each convolution
apart from the additions behind it, and no convolutions by minimal filtering. The packages run in
turn, each in a process of its own. A cell is the ratio of the minimum latencies, and of the medians
of medians, to those of the pipeline as it is: above 1 the change is slower. Tuning could search
such choices if some of them paid.
"""

import argparse
import json
import tempfile
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from statistics import median
from typing import Final

from turns import run_python, take_turns

CHOICES: Final[Mapping[str, str]] = {
    "as it is": "tuning=null",
    "NCHW": "layout={conv2d: [NCHW, OIHW]}",
    "additions apart": "fusion={apart: [[nn.conv2d, add]]}",
    "no minimal filtering": "numerics.fast_algorithms=false",
}
SECONDS: Final = 0.7


def main() -> None:
    """Print a row for each pipeline."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("pipelines", nargs="+", type=Path)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    changes = [name for name in CHOICES if name != "as it is"]
    print("| pipeline | milliseconds | " + " | ".join(changes) + " |")
    print("|---" * (2 + len(changes)) + "|")
    for pipeline in options.pipelines:
        with tempfile.TemporaryDirectory() as folder:
            times = time_choices(pipeline, Path(folder), options.rounds)
        least = {name: min(one["minimum"] for one in rounds) for name, rounds in times.items()}
        middle = {name: median(one["median"] for one in rounds) for name, rounds in times.items()}
        cells = [
            f"{least[name] / least['as it is']:.2f}, {middle[name] / middle['as it is']:.2f}"
            for name in changes
        ]
        print(f"| {pipeline.stem} | {least['as it is']:.3g} | {' | '.join(cells)} |", flush=True)


def time_choices(pipeline: Path, folder: Path, rounds: int) -> dict[str, list[Mapping[str, float]]]:
    """Build all packages; return their latencies in milliseconds, one entry per round."""
    packages = {name: build(pipeline, folder / str(at), name) for at, name in enumerate(CHOICES)}
    return take_turns(
        {name: partial(time_package, each) for name, each in packages.items()}, rounds
    )


def time_package(package: Path) -> Mapping[str, float]:
    """Time a package in a process of its own; return its latencies in milliseconds."""
    answer = run("bench", package, "--seconds", SECONDS, "--warmup", 0.3, "--json")
    milliseconds: Mapping[str, float] = json.loads(answer)["milliseconds"]
    return milliseconds


def build(pipeline: Path, folder: Path, choice: str) -> Path:
    """Build the package with a choice, without tuning, benchmark and check of the whole."""
    changes = ("tuning=null", "benchmark=null", "verify=null", CHOICES[choice])
    options = [word for change in changes for word in ("--set", change)]
    run("run", pipeline, "--store", folder.parent / "store", "--output", folder, "-q", *options)
    (package,) = folder.iterdir()
    return package


def run(*words: object) -> str:
    """Run a command of autopipe; return what it prints."""
    return run_python("-m", "autopipe", *words)


if __name__ == "__main__":
    main()
