"""Every pipeline from YAML to package: `python benchmarks/pipelines.py pipelines/*.yaml`.

Each runs in a store of its own that is empty at the start. Prints one row a pipeline: seconds from
the model file to the end of `tasks` (tvm's import included), of tuning, and in all; then what
`verify` and `benchmark` said. Extra arguments after `--` go to `autopipe run`, for example
`-- --set tuning=null` for the schedules without tuning.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

FRONT = ("import", "optimize", "lower", "tasks")


def main() -> int:
    """Run and print; return 1 if a pipeline failed."""
    arguments = sys.argv[1:]
    split = arguments.index("--") if "--" in arguments else len(arguments)
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("pipelines", nargs="+", type=Path)
    options = parser.parse_args(arguments[:split])
    print(f"{'pipeline':<14} {'to tasks':>8} {'tune':>7} {'in all':>7}  result")
    failed = [not measure(path, arguments[split + 1 :]) for path in options.pipelines]
    return int(any(failed))


def measure(pipeline: Path, extra: list[str]) -> bool:
    """Run one pipeline, print its row, and tell whether it ended well."""
    start, front = time.monotonic(), 0.0
    seconds: dict[str, float] = {}
    said: dict[str, str] = {}
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "autopipe", "run", "--json", str(pipeline), *extra]
        command += ["--store", f"{folder}/store", "--output", f"{folder}/dist"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as run:
            assert run.stdout is not None  # noqa: S101 -- asked for
            for event in map(json.loads, run.stdout):
                if event["event"] == "stage_finished":
                    seconds[event["stage"]] = event["seconds"]
                    said[event["stage"]] = event["summary"]
                    if event["stage"] == FRONT[-1]:
                        front = time.monotonic() - start
    total, tune = time.monotonic() - start, seconds.get("tune", 0.0)
    print(f"{pipeline.stem:<14} {front:7.1f}s {tune:6.1f}s {total:6.1f}s", flush=True)
    for stage in ("tasks", "tune", "build", "verify", "benchmark", "package"):
        if stage in said:
            print(f"{'':<14} {stage}: {said[stage]}", flush=True)
    if run.returncode:
        print(f"{'':<14} failed with exit code {run.returncode}", flush=True)
    return run.returncode == 0


if __name__ == "__main__":
    sys.exit(main())
