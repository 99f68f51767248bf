"""What is lost when a farm is shot at: `python benchmarks/farm_drill.py --kill worker,scheduler`.

A whole `autopipe run` of a small model on workers over TLS on this machine, whose times are a
digest of the schedule (tests/farm/fixed.py): first undisturbed, then with one of what `--kill`
names killed again and again, at random moments, and started anew; or frozen for 40 s. It prints how
many trials there are, whether one was made twice, how many were begun in vain, the longest wait for
one, and how many records are those of the undisturbed run. With `--real` workers compile and time
as always, with all of their patience, and what they say differs from run to run.
"""

import argparse
import random
import re
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from autopipe.api import farm
from autopipe.records.record import REPEAT_SUFFIX
from tests.farm import conftest
from tests.farm.conftest import Place, place_in

MODEL: Final = Path(__file__).parents[1] / "pipelines/models/mlp.onnx"

LABEL: Final = "drill"

_until: Any = conftest.until

_ROWS: Final = (
    "SELECT hash, engine, implementation, schedule, seconds, error, session FROM records"
    " JOIN workloads ON workloads.id = records.workload WHERE session NOT LIKE '%' || ?"
)


class Drill:
    """A farm, a run on it, and the killing of its processes."""

    def __init__(self, place: Place, folder: Path, options: argparse.Namespace) -> None:
        """Begin the run."""
        self._place: Any = place
        self._folder, self._options = folder, options
        self._log = folder / "begun"
        self._variables = {
            "AUTOPIPE_TEST_BENCH": "real" if options.real else "tests.farm.fixed",
            "AUTOPIPE_TEST_SECONDS": f"{options.seconds}", "AUTOPIPE_TEST_LOG": str(self._log),
        }  # fmt: skip
        self.longest = 0.0
        self._workers = [place.begin(LABEL, **self._variables) for _ in range(options.workers)]
        for worker in self._workers:
            _until(worker, "works for")
        (found,) = (
            one for one in farm.diagnose_farm(place.address, place.folder) if one.what == LABEL
        )
        target = re.search(r"target: \{.*\}", found.detail)
        assert target is not None  # noqa: S101 -- `doctor --cluster` says it of each label
        self._file = folder / "drill.yaml"
        self._file.write_text(
            f"version: 1\nname: drill\n{target[0]}\nbenchmark: null\n"
            f"model: {{path: {MODEL}, inputs: {{input: {{shape: [8, 128], dtype: float32}}}}}}\n"
            f"schedules: {{rules: [{{engines: [{options.engine}]}}]}}\ntasks: {{judge: null}}\n"
            f"tuning: {{budget: {{trials: {options.trials}}}, measure: {{runner: farm,"
            f" label: {LABEL}, scheduler: '{place.address}', certificates: {place.folder}}}}}\n"
        )
        self._run = self._begun()

    def go(self, kinds: Sequence[str]) -> Counter[str]:
        """Wait until the run has ended, and shoot meanwhile; return how often at what."""
        rng = random.Random(self._options.seed)  # noqa: S311 -- no secret
        shot, after, had, since = Counter[str](), 8, 0, time.monotonic()
        while self._run.poll() is None:
            count = len(self.rows())
            if count != had:
                self.longest = max(self.longest, time.monotonic() - since if had else 0.0)
                had, since = count, time.monotonic()
            if kinds and after <= count < self._options.trials - 8:
                time.sleep(rng.random())
                kind = rng.choice(kinds)
                shot[kind] += 1
                getattr(self, f"_kill_{kind}")(rng)
                after = count + rng.randrange(8, 40)
            time.sleep(0.2)
        if self._run.returncode:
            sys.exit((self._folder / "log").read_text())
        return shot

    def begun(self) -> int | None:
        """Return how many trials were begun, those that came to nothing among them."""
        return len(self._log.read_text().splitlines()) if self._log.exists() else None

    def rows(self) -> list[tuple[Any, ...]]:
        """Return the trials that are on the disk."""
        path = self._folder / "store/records/records.sqlite"
        try:
            with sqlite3.connect(f"file:{path}?mode=ro", uri=True) as connection:
                return connection.execute(_ROWS, (REPEAT_SUFFIX,)).fetchall()
        except sqlite3.OperationalError:  # it is not there yet
            return []

    def _begun(self) -> "subprocess.Popen[bytes]":
        command = (sys.executable, "-m", "autopipe", "run", self._file, "--store",
                   self._folder / "store", "--output", self._folder / "dist")  # fmt: skip
        with (self._folder / "log").open("wb") as log:
            return subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)

    def _kill_worker(self, rng: random.Random) -> None:
        place = rng.randrange(len(self._workers))
        self._workers[place].kill()
        self._workers[place] = self._place.begin(LABEL, **self._variables)

    def _kill_frozen(self, rng: random.Random) -> None:
        worker = rng.choice(self._workers)
        worker.send_signal(signal.SIGSTOP)
        time.sleep(40)
        worker.send_signal(signal.SIGCONT)

    def _kill_scheduler(self, _: random.Random) -> None:
        self._place.scheduler.kill()
        self._place.scheduler.wait()
        self._place.schedule()

    def _kill_run(self, _: random.Random) -> None:
        self._run.kill()
        self._run.wait()
        self._run = self._begun()


def main() -> None:
    """Run undisturbed, then disturbed, and compare."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--kill", default="worker,scheduler", help="worker, scheduler, run, frozen")
    parser.add_argument("--real", action="store_true", help="compile and time")
    parser.add_argument("--engine", default="autotvm")
    parser.add_argument("--seconds", type=float, default=0.1, help="of a trial")
    for name, default in (("trials", 128), ("workers", 4), ("seed", 0)):
        parser.add_argument(f"--{name}", type=int, default=default)
    options = parser.parse_args()
    found = list(_both(options))
    same = len({row[:6] for row in found[0]} & {row[:6] for row in found[1]})
    print(f"{same} of {len(found[0])} records are those of the undisturbed run")


def _both(options: argparse.Namespace) -> Iterator[list[tuple[Any, ...]]]:
    for kinds in (list[str](), options.kill.split(",")):
        with tempfile.TemporaryDirectory() as folder, place_in(Path(folder)) as place:
            start = time.monotonic()
            drill = Drill(place, Path(folder), options)
            shot = drill.go(kinds)
            rows = drill.rows()
            twice = len(rows) - len({row[:4] for row in rows})
            kills = ", ".join(f"{kind} {times} times" for kind, times in sorted(shot.items()))
            failed = sum(row[5] is not None for row in rows)
            print(
                f"killed: {kills or 'nothing'}: {len(rows)} trials, {twice} of them made twice,"
                f" {failed} failed, in"
                f" {time.monotonic() - start:.0f} s, {drill.longest:.1f} s the longest wait"
                f"{_vain(drill.begun(), len(rows))}", flush=True,
            )  # fmt: skip
            yield rows


def _vain(begun: int | None, made: int) -> str:
    return "" if begun is None else f", {begun - made} begun in vain"


if __name__ == "__main__":
    main()
