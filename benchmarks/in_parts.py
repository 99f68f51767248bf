"""Benchmarks that take long: their work is kept in a folder and done in parts, one command each."""

import argparse
import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from safetensors.numpy import save_file

from autopipe.artifacts.signature import Port
from autopipe.store.artifact import Artifact
from autopipe.verification.inputs import draw_inputs
from autopipe.verification.limits import find_input_limits


def parser(description: str, parts: Sequence[str], rounds: int) -> argparse.ArgumentParser:
    """Return a parser of what all of them take: parts, pipelines, a folder, rounds, seconds."""
    options = argparse.ArgumentParser(description=description)
    options.add_argument("parts", nargs="*", help=f"of {', '.join(parts)}, all if none is named; "
                       "then pipeline files")  # fmt: skip
    options.add_argument("--folder", type=Path, help="keeps builds and times; else nothing is kept")
    options.add_argument("--rounds", type=int, default=rounds, help="turns of each contender")
    options.add_argument("--seconds", type=float, default=math.inf, help="begin nothing after that")
    return options


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


def write_inputs(ports: Sequence[Port], import_artifact: Path, file: Path) -> None:
    """Write random inputs that the limits of an imported model admit."""
    save_file(draw_inputs(ports, find_input_limits(import_artifact, ports), (0, 0)), file)
