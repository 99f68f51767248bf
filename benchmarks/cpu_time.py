"""Builds and competitors by processor time: `python benchmarks/cpu_time.py FOLDERS [--rounds 3]`.

For a machine that others use, too: time on the clock then says little, processor time of one thread
repeats within 3 %. A folder is one that `race.py` keeps, for one thread, after `race.py time`, such
as `F/resnet18_int8/1-untuned`. Each contender runs in a process of its own, in turn; printed is the
minimum processor time of a call. Competitors that cannot run a model are listed below.
"""

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final

from safetensors.numpy import load_file

from autopipe.benchmarking.competitors import COMPETITORS

OURS: Final = "autopipe"
CALLS: Final = 15
WARM: Final = 3
NAMES: Final = ("onnxruntime", "openvino")


def main() -> None:
    """Print the table, or the time of one contender where this is its process."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folders", nargs="+", type=Path)
    parser.add_argument("--rounds", type=int, default=3, help="turns of each contender")
    parser.add_argument("--contender", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.contender:
        print(measure(options.contender, options.folders[0]))
        return
    print(f"| build | {OURS} | {' | '.join(NAMES)} | ratio to the best |")
    print("|---" * (len(NAMES) + 3) + "|")
    failed: list[str] = []
    for folder in options.folders:
        times = {name: _least(name, folder, options.rounds, failed) for name in (OURS, *NAMES)}
        cells = " | ".join(f"{1e3 * seconds:.1f} ms" for seconds in times.values())
        best = min(times[name] for name in NAMES)
        print(f"| {folder.parent.name} | {cells} | {times[OURS] / best:.2f} |", flush=True)
    print("\n".join(failed))


def measure(name: str, folder: Path) -> float:
    """Return the minimum processor seconds of a call."""
    from autopipe.compiler.library.runtime import load_artifact

    inputs = load_file(folder / "inputs.safetensors")
    run: Callable[[], object]
    if name == OURS:
        run = partial(load_artifact(folder / "build"), inputs)
    else:
        source = (folder / "import" / "reference.onnx").resolve()
        run = COMPETITORS[name].prepare(source, inputs, 1)
    seconds = []
    for _ in range(WARM + CALLS):
        start = time.process_time()
        run()
        seconds.append(time.process_time() - start)
    return min(seconds[WARM:])


def _least(name: str, folder: Path, rounds: int, failed: list[str]) -> float:
    """Return the minimum of some rounds, infinity for a contender that cannot run."""
    command = [sys.executable, __file__, str(folder), "--contender", name]
    environment = os.environ | {"ORT_DISABLE_TELEMETRY": "1"}
    found = [float("inf")]
    for _ in range(rounds):
        done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
        if done.returncode:
            failed.append(f"- {folder.parent.name}: {name}: {done.stderr.strip()[-200:]}")
            break
        found.append(float(done.stdout.split()[-1]))
    return min(found)


if __name__ == "__main__":
    main()
