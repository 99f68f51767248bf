"""Bytes of packages, and what opening them takes: `python benchmarks/sizes.py PIPELINES`.

Each pipeline is built untuned. Printed are the bytes of its weights as they are imported, those of
the package by part, the ratio of both, and the bytes of weights as the kernels take them. Then the
milliseconds until the package is open and until the first answer, and resident memory: each the
least of five processes. With `--against CHECKOUT` another checkout builds and opens its own.
"""

import argparse
import os
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import Final

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
PARTS: Final = ("weights.safetensors", "lib.so")


def run_python(checkout: Path, *arguments: str) -> str:
    """Return the output of a Python command in a checkout."""
    environment = {**os.environ, "PYTHONPATH": str(checkout)}
    command = [sys.executable, *arguments]
    done = subprocess.run(
        command, cwd=checkout, env=environment, check=True, stdout=subprocess.PIPE, text=True
    )
    return done.stdout


def build(checkout: Path, pipeline: Path, work: Path) -> tuple[Path, int]:
    """Return the package of a pipeline, and the bytes of the imported weights."""
    store, output = work / "store", work / "dist"
    run_python(
        checkout, "-m", "autopipe", "run", str(pipeline), "--until", "package", "--no-lock",
        "--set", "tuning=null", "--set", "benchmark=null", "--store", str(store),
        "--output", str(output), "--quiet",
    )  # fmt: skip
    (package,) = output.glob("*.tar")
    (imported,) = (path.parent for path in store.rglob("model.json"))
    return package, (imported / "weights.safetensors").stat().st_size


def print_row(name: str, checkout: Path, package: Path, model: int) -> None:
    """Print the bytes of a package, and what opening it takes."""
    with tarfile.open(package) as archive:
        sizes = {member.name: member.size for member in archive}
    weights, library = (sizes.pop(part) for part in PARTS)
    answers = [run_python(checkout, "-c", OPEN, str(package)) for _ in range(ROUNDS)]
    opened, answered, resident, taken = (
        min(values) for values in zip(*(map(float, one.split()) for one in answers), strict=True)
    )
    print(
        f"| {name} | {checkout.name} | {model / 1e6:.2f} | {package.stat().st_size / 1e6:.2f} "
        f"| {package.stat().st_size / model:.2f} | {weights / 1e6:.2f} | {taken / 1e6:.2f} "
        f"| {library / 1e6:.2f} | {sum(sizes.values()) / 1e6:.2f} "
        f"| {opened * 1e3:.0f} | {answered * 1e3:.0f} | {resident:.0f} |",
        flush=True,
    )


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("pipelines", nargs="+", type=Path)
    parser.add_argument("--against", type=Path, help="another checkout")
    options = parser.parse_args()
    here = Path(__file__).parents[1]
    checkouts = [here, *([options.against.resolve()] if options.against else [])]
    print("| pipeline | checkout | model, MB | package, MB | ratio | weights stored, MB "
          "| weights loaded, MB | library, MB | others, MB | open, ms | first answer, ms "
          "| resident, MiB |")  # fmt: skip
    print("|---" * 12 + "|")
    for pipeline in options.pipelines:
        for checkout in checkouts:
            with tempfile.TemporaryDirectory() as work:
                package, model = build(checkout, pipeline.resolve(), Path(work))
                print_row(pipeline.stem, checkout, package, model)


if __name__ == "__main__":
    main()
