"""Models that others published, from file to answer: `python benchmarks/published.py MODELS`.

A model is an ONNX file, `pkg:package/path` of one in an installed package, a wheel, which stands
for all models in it, or one of these: `some.whl/path/in/it.onnx`. What a model leaves open is given
behind it, and what an input always is: `model.onnx@x=1,3,320,320@rate==16000`. Each goes the way of
a newcomer, in a store of its own: `autopipe init`, `run` without tuning, and `infer` on new
inputs, which are compared with what onnxruntime computes of the file as it was published.
One row a model; below it the message where it did not work: *refused* is exit code 2 or 3, with a
line that says why. Extra arguments after `--` go to `autopipe run`, in the place of
`--set tuning=null`. With `--open` as the first argument a model keeps unspecified sizes dynamic:
`init --open`, one package, and `infer` at likely sizes, at the ends of the ranges, and at others.
"""

import json
import math
import os
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np

from autopipe.artifacts.benchmark import BenchmarkReport
from autopipe.artifacts.model import ImportedModel
from autopipe.config.dimension import Sizes, format_sizes, list_likely_sizes
from autopipe.config.load import load
from autopipe.config.paths import find_model_path
from autopipe.verification.inputs import draw_inputs
from autopipe.verification.limits import find_input_limits
from autopipe.verification.reference import EXACT_BYTES
from autopipe.verification.sizes import choose_trial_sizes

FRESH = (2026, 11)
"""Seed of the inputs; no case of stage *verify* has it."""
CLOSE = 1e-3
"""Largest error that passes, as a part of the output's largest value."""
SMALLEST = 5e-4
"""Largest values below it count as this one: a sigmoid may be off by some roundings of 1."""
SIZES = 6
"""Sizes that a model with open ones is asked at besides the likely ones."""
REFUSED = (2, 3)
"""Exit codes of a pipeline file or a model that is not taken."""
COLUMNS = "{:<38} {:>7} {:>7} {:>5} {:>14} {:>6} {:>8}"


@dataclass
class Journey:
    """How far a model came."""

    model: str
    init: str = "-"
    run: str = "-"
    infer: str = "-"
    equal: str = "-"
    ratio: float = math.nan
    seconds: float = math.nan
    """From `init` to the package."""
    message: str = ""
    """The error of the step that failed."""

    @property
    def good(self) -> bool:
        """Whether it came to the end, with the answers of onnxruntime."""
        return self.equal.startswith("equal")

    @property
    def refused(self) -> bool:
        """Whether a step refused the model in one line."""
        return "refused" in {self.init, self.run}


def main() -> int:
    """Print the table; return 1 if a model neither came to its end nor was refused."""
    arguments = sys.argv[1:]
    keeps_open = arguments[:1] == ["--open"]
    arguments = arguments[keeps_open:]
    split = arguments.index("--") if "--" in arguments else len(arguments)
    if not arguments[:split]:
        sys.exit(__doc__)
    extra = arguments[split + 1 :] or ["--set", "tuning=null"]
    os.environ["ORT_DISABLE_TELEMETRY"] = "1"
    print(COLUMNS.format("model", "init", "run", "infer", "onnxruntime", "ratio", "package"))
    with tempfile.TemporaryDirectory() as folder:
        found = [
            journey(model, shapes, Path(folder, str(index)), extra, keeps_open=keeps_open)
            for index, (model, shapes) in enumerate(models(arguments[:split], Path(folder)))
        ]
    refused = sum(gone.refused for gone in found)
    print(f"{sum(gone.good for gone in found)} of {len(found)} models work, {refused} are refused")
    return int(not all(gone.good or gone.refused for gone in found))


def models(arguments: Sequence[str], folder: Path) -> Iterator[tuple[str, list[str]]]:
    """Yield each model as `autopipe init` takes it, with its shapes; wheels are unpacked."""
    for argument in arguments:
        name, *shapes = argument.split("@")
        wheel, found, inside = name.partition(".whl")
        if not found:
            yield name, shapes
            continue
        with zipfile.ZipFile(f"{wheel}.whl") as archive:
            for member in archive.namelist():
                if member.endswith(".onnx") and member.startswith(inside.removeprefix("/")):
                    yield archive.extract(member, folder / Path(wheel).name), shapes


def journey(
    model: str, shapes: Sequence[str], folder: Path, extra: Sequence[str], *, keeps_open: bool
) -> Journey:
    """Take one model from file to answer, and print its row."""
    found = Journey(Path(model).name)
    folder.mkdir()
    try:
        _travel(found, model, shapes, folder, extra, keeps_open=keeps_open)
    except subprocess.CalledProcessError as error:
        found.message = str(error.stderr).strip().splitlines()[-1]
        if error.returncode in REFUSED:
            found.init, found.run = (
                "refused" if word == "fails" else word for word in (found.init, found.run)
            )
    words = (found.init, found.run, found.infer, found.equal)
    row = COLUMNS.format(found.model[:38], *words, f"{found.ratio:.2f}", f"{found.seconds:.1f}s")
    print(row, flush=True)
    if found.message:
        print(f"    {found.message}", flush=True)
    return found


def _travel(  # noqa: PLR0913 -- a journey
    found: Journey,
    model: str,
    shapes: Sequence[str],
    folder: Path,
    extra: Sequence[str],
    *,
    keeps_open: bool,
) -> None:
    start, pipeline = time.monotonic(), folder / "model.yaml"
    found.init = "fails"
    fixed = dict(given.split("==") for given in shapes if "==" in given)
    options = [f"--shape={given}" for given in shapes if "==" not in given]
    _autopipe("init", model, "-o", pipeline, *options, *["--open"] * keeps_open)
    for name, value in fixed.items():
        extra = [*extra, "--set", f"model.inputs.{name}.value={value}"]
    found.init, found.run = "ok", "fails"
    store = ("--store", folder / "store")
    run = _autopipe(
        "run", pipeline, *store, "--output", folder / "dist", "--no-lock", "--json", *extra
    )
    found.run, found.infer = "ok", "fails"
    found.seconds = time.monotonic() - start - _seconds(run, "benchmark")
    found.ratio = _ratio(folder)
    (package,) = (folder / "dist").glob("*.tar")
    (imported,) = (path.parent for path in (folder / "store").rglob("reference.onnx"))
    original = find_model_path(load(pipeline).model, folder)
    errors = {}
    for sizes in _sizes(imported):
        fresh = _fresh(imported, sizes)
        np.savez(folder / "fresh.npz", **fresh)
        _autopipe("infer", package, "--input", folder / "fresh.npz", "--output", folder / "out")
        errors[format_sizes(sizes)] = compared(original, fresh, folder / "out", fixed)
    found.infer = "ok"
    worst = max(errors, key=lambda sizes: errors[sizes])
    found.equal = f"{'equal' if errors[worst] <= CLOSE else 'differs'} {errors[worst]:.0e}"
    if worst:
        found.message = f"{len(errors)} sizes, the largest error with {worst}"


def _fresh(imported: Path, sizes: Sizes) -> dict[str, Any]:
    """Return random inputs with a seed of their own."""
    ports = tuple(port.at(sizes) for port in ImportedModel.read(imported).inputs)
    return draw_inputs(ports, find_input_limits(imported, ports), FRESH)


def _sizes(imported: Path) -> list[Sizes]:
    """Return the sizes that a package is asked at; one that is empty where none is open."""
    dimensions = ImportedModel.read(imported).dimensions
    if not dimensions:
        return [{}]
    return [*list_likely_sizes(dimensions), *choose_trial_sizes(dimensions, FRESH[0])[:SIZES]]


def compared(
    model: Path, inputs: dict[str, Any], outputs: Path, fixed: Mapping[str, str] | None = None
) -> float:
    """Compare saved outputs with those of onnxruntime on the same inputs.

    Returns the largest error as a part of the output's largest value; it is infinite where shapes
    differ. `fixed` are numbers that the build has inside, by the names of their inputs.
    """
    import onnxruntime

    onnxruntime.set_default_logger_severity(4)
    options = onnxruntime.SessionOptions()
    options.add_session_config_entry(*EXACT_BYTES)
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    for port in session.get_inputs():
        if fixed and port.name in fixed:
            kind = port.type.removeprefix("tensor(").removesuffix(")")
            dtype = {"float": "float32", "double": "float64"}.get(kind, kind)
            inputs = {**inputs, port.name: np.full(port.shape, float(fixed[port.name]), dtype)}
    worst = 0.0
    for output, theirs in zip(session.get_outputs(), session.run(None, inputs), strict=True):
        ours = np.load(outputs / f"{quote(output.name, safe='')}.npy")
        if ours.shape != theirs.shape or not np.array_equal(np.isfinite(ours), np.isfinite(theirs)):
            return math.inf
        kept = np.isfinite(theirs)
        error = np.abs(ours.astype("float64") - theirs)[kept].max(initial=0)
        scale = float(np.abs(theirs[kept]).max(initial=0))
        worst = max(worst, error / max(scale, SMALLEST if theirs.dtype.kind == "f" else 1e-30))
    return float(worst)


def _autopipe(*arguments: object) -> str:
    command = [sys.executable, "-m", "autopipe", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def _seconds(events: str, stage: str) -> float:
    finished = (json.loads(line) for line in events.splitlines())
    return sum(
        float(event["seconds"])
        for event in finished
        if event["event"] == "stage_finished" and event["stage"] == stage
    )


def _ratio(folder: Path) -> float:
    for path in folder.rglob("benchmark.json"):
        comparisons = BenchmarkReport.read(path.parent).comparisons.values()
        return next((one.ratio for one in comparisons), math.nan)
    return math.nan


if __name__ == "__main__":
    sys.exit(main())
