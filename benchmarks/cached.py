"""CPU seconds of the commands that do no work: `python benchmarks/cached.py pipelines/*.yaml`.

Prints the least of several rounds, user and system time of all processes together. The pipelines
must have been run before: a stage that runs again is named, and the exit code is then 1.
"""

import argparse
import json
import resource
import subprocess
import sys


def main() -> int:
    """Measure and print; return 1 where a stage ran."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("pipelines", nargs="+")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    repeated = False
    for command in commands(options.pipelines):
        seconds, ran = min(measure(command) for _ in range(options.rounds))
        note = f"  ran: {', '.join(ran)}" if ran else ""
        print(f"{seconds:6.3f} s  autopipe {' '.join(command)}{note}", flush=True)
        repeated = repeated or bool(ran)
    return int(repeated)


def commands(pipelines: list[str]) -> list[list[str]]:
    """List the commands that should answer at once."""
    each = [
        [*verb, path] for path in pipelines for verb in (["validate"], ["plan"], ["run", "--json"])
    ]
    return [["--help"], *each]


def measure(command: list[str]) -> tuple[float, list[str]]:
    """Return the CPU seconds of one call, and the stages that ran in it."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(
        [sys.executable, "-m", "autopipe", *command], stdout=subprocess.PIPE, text=True, check=True
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    events = map(json.loads, done.stdout.splitlines()) if "--json" in command else ()
    return seconds, [event["stage"] for event in events if event["event"] == "stage_started"]


if __name__ == "__main__":
    sys.exit(main())
