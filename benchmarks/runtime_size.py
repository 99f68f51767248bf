"""What it takes to run packages: a fresh environment with the wheel `autopipe-run`, by size.

python benchmarks/runtime_size.py [PACKAGES]

Builds the wheel, installs it with what it depends on into an empty environment, prints what that
takes on the disk, opens the packages there, and compares what they return for random inputs with
what they return in autopipe.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
import venv
from pathlib import Path

import numpy as np

import autopipe
from autopipe.export.wheel import build_wheel

LIMIT = 100
"""MB that the environment may take."""
RUN = """
import json, sys, time
begun = time.perf_counter()
import autopipe_runtime
import numpy as np
for package, given, out in json.loads(sys.argv[1]):
    model = autopipe_runtime.open_package(package)
    outputs = model(dict(np.load(given)))
    print(f"{package}: {time.perf_counter() - begun:.3f} s to the first answer")
    np.savez(out, **outputs)
    model.close()
    begun = time.perf_counter()
"""


def disk_usage(path: Path) -> float:
    """Return what a file or folder takes on the disk in MB, as `du` counts it."""
    return sum(one.lstat().st_blocks for one in (path, *path.rglob("*"))) * 512 / 1e6


def install(wheel: Path, environment: Path) -> Path:
    """Install the wheel, and what it depends on, from the package index; return where it lies."""
    venv.create(environment, with_pip=False)
    (site,) = environment.glob("lib/python*/site-packages")
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--python"]
    subprocess.run([*pip, str(environment), "install", "--quiet", str(wheel)], check=True)
    return site


def compare(packages: list[Path], python: Path, work: Path) -> None:
    """Compare outputs with those of autopipe, and raise SystemExit where they differ."""
    random = np.random.default_rng(0)
    jobs, expected = [], []
    for at, package in enumerate(packages):
        model = autopipe.open_package(package)
        dimensions = model.signature.dimensions
        ports = model.signature.at({name: one.likely[0] for name, one in dimensions.items()})
        inputs = {
            port.name: random.integers(0, 2, port.shape).astype(port.dtype)
            if np.dtype(port.dtype).kind in "iub"
            else random.standard_normal(port.shape).astype(port.dtype)
            for port in ports
        }
        np.savez(work / f"{at}.in.npz", allow_pickle=False, **inputs)
        expected.append(model(inputs))
        jobs.append((str(package), str(work / f"{at}.in.npz"), str(work / f"{at}.out.npz")))
    subprocess.run([python, "-I", "-c", RUN, json.dumps(jobs)], check=True)
    for (name, _, out), outputs in zip(jobs, expected, strict=True):
        found = dict(np.load(out))
        same = all(np.array_equal(found[output], array) for output, array in outputs.items())
        print(f"{name}: {'the same as in autopipe' if same else 'DIFFERENT'}")
        if not same:
            raise SystemExit(1)


def main() -> None:
    """Print sizes and verdicts."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("packages", type=Path, nargs="*")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        wheel = build_wheel(work / "dist")
        print(f"{wheel.name}: {wheel.stat().st_size / 1e6:.1f} MB")
        begun = time.perf_counter()
        site = install(wheel, work / "environment")
        print(f"installed in {time.perf_counter() - begun:.0f} s")
        for path in sorted(site.iterdir(), key=disk_usage, reverse=True):
            print(f"{disk_usage(path):8.1f} MB  {path.name}")
        total = disk_usage(site)
        print(f"{total:8.1f} MB  site-packages")
        if total > LIMIT:
            raise SystemExit(f"more than {LIMIT} MB")
        compare(options.packages, work / "environment" / "bin" / "python", work)


if __name__ == "__main__":
    main()
