"""Every pipeline from YAML to package: `python benchmarks/pipelines.py pipelines/*.yaml`.

Each runs in a store of its own that is empty at the start. Prints one row a pipeline: seconds from
the model file to the end of `tasks` (tvm's import included), of tuning, and in all, and the latency
as a multiple of the best rival's; then what the stages said, and the geometric mean of the
multiples.
Extra arguments after `--` go to `autopipe run`, for example
`-- --set tuning=null` for the schedules without tuning.
"""

import argparse
import json
import math
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from autopipe.artifacts.benchmark import BenchmarkReport

FRONT = ("import", "optimize", "lower", "tasks")


def main() -> int:
    """Run and print; return 1 if a pipeline failed."""
    arguments = sys.argv[1:]
    split = arguments.index("--") if "--" in arguments else len(arguments)
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("pipelines", nargs="+", type=Path)
    options = parser.parse_args(arguments[:split])
    print(f"{'pipeline':<14} {'to tasks':>8} {'tune':>7} {'in all':>7} {'ratio':>6}")
    ratios = [measure(path, arguments[split + 1 :]) for path in options.pipelines]
    known = [ratio for ratio in ratios if ratio is not None]
    if known:
        mean = math.exp(sum(map(math.log, known)) / len(known))
        print(f"geometric mean of {len(known)}: {mean:.2f}, worst {max(known):.2f}")
    return int(len(known) < len(ratios))


def measure(pipeline: Path, extra: list[str]) -> float | None:
    """Run one pipeline, print its row, and return its ratio, or None if it did not end well."""
    start, front = time.monotonic(), 0.0
    seconds: dict[str, float] = {}
    said: dict[str, str] = {}
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "autopipe", "run", "--json", str(pipeline), *extra]
        command += ["--store", f"{folder}/store", "--output", f"{folder}/dist"]
        command += [] if "--locked" in extra else ["--no-lock"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as run:
            assert run.stdout is not None  # noqa: S101 -- asked for
            for event in map(json.loads, run.stdout):
                if event["event"] == "stage_finished":
                    seconds[event["stage"]] = event["seconds"]
                    said[event["stage"]] = event["summary"]
                    if event["stage"] == FRONT[-1]:
                        front = time.monotonic() - start
        ratio = _ratio(Path(folder))
    total, tune = time.monotonic() - start, seconds.get("tune", 0.0)
    print(
        f"{pipeline.stem:<14} {front:7.1f}s {tune:6.1f}s {total:6.1f}s {ratio or math.nan:6.2f}",
        flush=True,
    )
    for stage in ("tasks", "tune", "build", "verify", "benchmark", "package"):
        if stage in said:
            print(f"{'':<14} {stage}: {said[stage]}", flush=True)
    if run.returncode:
        print(f"{'':<14} failed with exit code {run.returncode}", flush=True)
    return None if run.returncode else ratio


def _ratio(folder: Path) -> float | None:
    """Return the latency as a multiple of the best rival's, from the artifact of `benchmark`."""
    for path in folder.rglob("benchmark.json"):
        comparisons = BenchmarkReport.read(path.parent).comparisons.values()
        return max(found.ratio for found in comparisons) if comparisons else None
    return None


if __name__ == "__main__":
    sys.exit(main())
