"""Contenders in turn, other checkouts, and what a command costs: what benchmarks share."""

import argparse
import json
import os
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple, TypeVar

ROOT: Final = Path(__file__).parents[1]
"""This checkout."""

_WATCH: Final = """
import json, os, sys, time
start = time.monotonic()
child = os.posix_spawn(sys.executable, [sys.executable, *sys.argv[2:]], os.environ)
_, status, usage = os.wait4(child, 0)
wall = time.monotonic() - start
cost = wall, usage.ru_utime + usage.ru_stime, usage.ru_maxrss << 10
os.write(int(sys.argv[1]), json.dumps(cost).encode())
sys.exit(os.waitstatus_to_exitcode(status) & 255)
"""
"""A process that measures another one."""

_Name = TypeVar("_Name")
_Result = TypeVar("_Result")


class Cost(NamedTuple):
    """What a command takes."""

    wall: float
    """Seconds on the clock."""
    cpu: float
    """Seconds of all processors together."""
    peak: int
    """Bytes of memory of its largest process."""


def add_against(parser: argparse.ArgumentParser) -> None:
    """Add the option that names another checkout to compare with."""
    parser.add_argument("--against", type=Path, help="another checkout, measured in turn")


def list_checkouts(options: argparse.Namespace) -> list[Path]:
    """Return this checkout and the one that `--against` names."""
    return [ROOT, *([options.against.resolve()] if options.against else [])]


def import_from(checkout: Path, *folders: str) -> dict[str, str]:
    """Return the environment of a process that imports from a checkout, and so its children."""
    paths = (checkout.resolve(), *(checkout.resolve() / folder for folder in folders))
    return {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, paths))}


def run_python(*arguments: object, checkout: Path | None = None) -> str:
    """Return the output of a Python command, in a checkout if one is named."""
    return measure_python(*arguments, checkout=checkout)[1]


def measure_python(*arguments: object, checkout: Path | None = None) -> tuple[Cost, str]:
    """Return the cost of a Python command, with all processes that it waits for, and its output.

    A small process starts it: the peak memory of a process is at least that of its parent.
    """
    reader, writer = os.pipe()
    try:
        done = subprocess.run(
            [sys.executable, "-S", "-c", _WATCH, str(writer), *map(str, arguments)],
            cwd=checkout, env=import_from(checkout) if checkout else None, check=True,
            stdout=subprocess.PIPE, text=True, pass_fds=[writer],
        )  # fmt: skip
        return Cost(*json.loads(os.read(reader, 4096))), done.stdout
    finally:
        os.close(reader)
        os.close(writer)


def take_turns(
    contenders: Mapping[_Name, Callable[[], _Result]], rounds: int
) -> dict[_Name, list[_Result]]:
    """Call all contenders in each round, every second round in reverse; return their results."""
    results: dict[_Name, list[_Result]] = {name: [] for name in contenders}
    for number in range(rounds):
        for name in list(contenders)[:: -1 if number % 2 else 1]:
            results[name].append(contenders[name]())
    return results


def compare_times(ours: Sequence[float], theirs: Sequence[float]) -> tuple[float, float]:
    """Return our time as a multiple of theirs: by the minima, and by the medians."""
    return min(ours) / min(theirs), statistics.median(ours) / statistics.median(theirs)


def summarize_ratios(ratios: Iterable[tuple[float, ...]]) -> list[str]:
    """Return the geometric mean and the maximum of each column of ratios."""
    return [
        f"{statistics.geometric_mean(column):.2f}, {max(column):.2f}"
        for column in zip(*ratios, strict=True)
    ]


def head_table(*titles: str) -> str:
    """Return the first two lines of a Markdown table."""
    return f"| {' | '.join(titles)} |\n{'|---' * len(titles)}|"
