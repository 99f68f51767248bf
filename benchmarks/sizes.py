"""Bytes of packages, and what opening them takes: `python benchmarks/sizes.py PIPELINES`.

Each pipeline is built untuned. Printed are the bytes of its weights as they are imported, those of
the package by part, the ratio of both, and the bytes of weights as the kernels take them. Then the
milliseconds until the package is open and until the first answer, and resident memory: each the
minimum of five processes. With `--against CHECKOUT` another checkout builds its own package, which
is opened in turn.
"""

import argparse
import tarfile
import tempfile
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Final

from turns import add_against, head_table, list_checkouts, run_python, take_turns

ROUNDS: Final = 5
OPEN: Final = """
import sys, time
import numpy as np
from autopipe import open_package
from autopipe.compiler.library import runtime
runtime._load_runtime()
begun = time.perf_counter()
model = open_package(sys.argv[1])
opened = time.perf_counter() - begun
model({port.name: np.ones(port.shape, port.dtype) for port in model.signature.inputs})
answered = time.perf_counter() - begun
with open("/proc/self/smaps_rollup") as file:
    (resident,) = (int(line.split()[1]) for line in file if line.startswith("Rss:"))
weights = [np.from_dlpack(one) for one in model._arguments[len(model.signature.inputs):]]
print(opened, answered, resident / 1024, sum(one.nbytes for one in weights))
"""
HEADER: Final = (
    "pipeline", "checkout", "model, MB", "package, MB", "ratio", "weights stored, MB",
    "weights loaded, MB", "library, MB", "others, MB", "open, ms", "first answer, ms",
    "resident, MiB",
)  # fmt: skip
PARTS: Final = ("weights.safetensors", "lib.so")


def build(checkout: Path, pipeline: Path, work: Path) -> tuple[Path, int]:
    """Return the package of a pipeline, and the bytes of the imported weights."""
    store, output = work / "store", work / "dist"
    run_python(
        "-m", "autopipe", "run", pipeline, "--until", "package", "--no-lock", "--set",
        "tuning=null", "--set", "benchmark=null", "--store", store, "--output", output,
        "--quiet", checkout=checkout,
    )  # fmt: skip
    (package,) = output.glob("*.tar")
    (imported,) = (path.parent for path in store.rglob("model.json"))
    return package, (imported / "weights.safetensors").stat().st_size


def print_row(names: str, package: Path, model: int, answers: Sequence[str]) -> None:
    """Print the bytes of a package, and what opening it takes."""
    with tarfile.open(package) as archive:
        sizes = {member.name: member.size for member in archive}
    weights, library = (sizes.pop(part) for part in PARTS)
    opened, answered, resident, taken = (
        min(values) for values in zip(*(map(float, one.split()) for one in answers), strict=True)
    )
    print(
        f"| {names} | {model / 1e6:.2f} | {package.stat().st_size / 1e6:.2f} "
        f"| {package.stat().st_size / model:.2f} | {weights / 1e6:.2f} | {taken / 1e6:.2f} "
        f"| {library / 1e6:.2f} | {sum(sizes.values()) / 1e6:.2f} "
        f"| {opened * 1e3:.0f} | {answered * 1e3:.0f} | {resident:.0f} |",
        flush=True,
    )


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("pipelines", nargs="+", type=Path)
    add_against(parser)
    options = parser.parse_args()
    print(head_table(*HEADER))
    for pipeline in options.pipelines:
        with tempfile.TemporaryDirectory() as work:
            built = {
                checkout: build(checkout, pipeline.resolve(), Path(work, str(number)))
                for number, checkout in enumerate(list_checkouts(options))
            }
            opened = {
                checkout: partial(run_python, "-c", OPEN, package, checkout=checkout)
                for checkout, (package, _) in built.items()
            }
            for checkout, answers in take_turns(opened, ROUNDS).items():
                print_row(f"{pipeline.stem} | {checkout.name}", *built[checkout], answers)


if __name__ == "__main__":
    main()
