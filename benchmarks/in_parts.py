"""Benchmarks that take long: their work is kept in a folder and done in parts, one command each."""

import argparse
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from autopipe.store.artifact import Artifact


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


def keep(own: Path, artifacts: Mapping[str, Artifact], stages: Iterable[str] = ()) -> None:
    """Link to the artifacts of a build, of some stages or all of them, all at once."""
    part = own.with_name(f"{own.name}.part")
    part.mkdir(parents=True, exist_ok=True)
    for stage in stages or artifacts:
        (part / stage).unlink(missing_ok=True)
        (part / stage).symlink_to(artifacts[stage].path)
    part.rename(own)
