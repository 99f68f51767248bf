"""Seconds from a fresh clone with an empty store to the package that a checked-in lock promises.

    python benchmarks/frozen.py pipelines/squeezenet.yaml pipelines/resnet50.yaml

Only what is committed counts. Each pipeline is built in a clone and a store of its own, and the
package is compared with the digest in the lock.
"""

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from autopipe.lock.file import read_lock
from autopipe.lock.recognize import lock_of
from autopipe.store.files import remove, sha256

ROOT = Path(__file__).parents[1]


def main() -> int:
    """Print a row for each pipeline; the exit code is 1 if a package is another one."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("pipelines", nargs="+", type=Path)
    other = 0
    for pipeline in parser.parse_args().pipelines:
        with tempfile.TemporaryDirectory() as folder:
            seconds, same = rebuild(pipeline, Path(folder))
        print(
            f"{pipeline.stem:<14} {seconds:6.1f} s  {'same' if same else 'OTHER'} bytes", flush=True
        )
        other += not same
    return int(other > 0)


def rebuild(pipeline: Path, folder: Path) -> tuple[float, bool]:
    """Return how long the frozen build took, and whether its package is the lock's."""
    clone, store = folder / "clone", folder / "store"
    subprocess.run(["git", "clone", "--quiet", ROOT, clone], check=True)  # noqa: S607 -- the user's
    file = clone / pipeline.absolute().relative_to(ROOT)
    command = [sys.executable, "-m", "autopipe", "run", str(file), "--frozen", "--quiet"]
    command += ["--store", str(store), "--output", str(folder / "dist")]
    start = time.monotonic()
    subprocess.run(command, stdout=subprocess.DEVNULL, check=True)
    seconds = time.monotonic() - start
    (package,) = (folder / "dist").iterdir()
    same = read_lock(lock_of(file)).artifacts[package.name] == sha256(package)
    remove(store)
    return seconds, same


if __name__ == "__main__":
    sys.exit(main())
