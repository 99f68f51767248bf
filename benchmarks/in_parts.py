"""Benchmarks that take long: their work is kept in a folder and done in parts, one command each."""

import argparse
import os
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final, Protocol, TypeVar

from safetensors.numpy import save_file

from autopipe.artifacts.signature import Port
from autopipe.store.artifact import Artifact
from autopipe.verification.inputs import draw_inputs
from autopipe.verification.limits import find_input_limits


def parser(description: str, parts: Sequence[str], rounds: int) -> argparse.ArgumentParser:
    """Return a parser of what all of them take: parts, pipelines, a folder, rounds."""
    found = argparse.ArgumentParser(description=description)
    found.add_argument("parts", nargs="*", help=f"of {', '.join(parts)}, all if none is named; "
                       "then pipeline files")  # fmt: skip
    found.add_argument("--folder", type=Path, help="keeps builds and times; else nothing is kept")
    found.add_argument("--rounds", type=int, default=rounds, help="turns of each contender")
    return found


def asked(given: Sequence[str], parts: Sequence[str]) -> tuple[Sequence[str], list[Path]]:
    """Return the parts that are asked for, all if none is, and the files behind them."""
    named = [part for part in given if part in parts]
    return named or parts, [Path(part) for part in given if part not in parts]


class BuiltPair(Protocol):
    """A pipeline that is built in two ways, which are timed in turn."""

    def build(self) -> None:
        """Build it in both ways, if that is not done."""

    def time(self, rounds: int) -> None:
        """Time both builds in turn, if that is not done."""


_Pair = TypeVar("_Pair", bound=BuiltPair)
PAIR_PARTS: Final = ("build", "time", "table")


def compare(
    options: argparse.ArgumentParser,
    pair: Callable[[Path, Path, str], _Pair],
    table: Callable[[Sequence[_Pair]], Iterable[str]],
) -> None:
    """Do the parts that are asked for; `pair` takes a pipeline, a folder and a budget."""
    given = options.parse_intermixed_args()
    parts, files = asked(given.parts, PAIR_PARTS)
    if not files:
        options.error("name pipeline files")
    os.environ["ORT_DISABLE_TELEMETRY"] = "1"
    with tempfile.TemporaryDirectory() as scratch:
        folder = (given.folder or Path(scratch)).absolute()
        pairs = [pair(path, folder, given.budget) for path in files]
        for one in pairs:
            if "build" in parts:
                one.build()
            if "time" in parts:
                one.time(given.rounds)
        if "table" in parts:
            print("\n".join(table(pairs)))


def keep(own: Path, artifacts: Mapping[str, Artifact], stages: Iterable[str] = ()) -> None:
    """Link to the artifacts of a build, of some stages or all of them, all at once."""
    part = own.with_name(f"{own.name}.part")
    part.mkdir(parents=True, exist_ok=True)
    for stage in stages or artifacts:
        (part / stage).unlink(missing_ok=True)
        (part / stage).symlink_to(artifacts[stage].path)
    part.rename(own)


def write_inputs(ports: Sequence[Port], import_artifact: Path, file: Path) -> None:
    """Write random inputs that the limits of an imported model admit."""
    save_file(draw_inputs(ports, find_input_limits(import_artifact, ports), (0, 0)), file)
