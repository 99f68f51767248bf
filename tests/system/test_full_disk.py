"""A disk that is really full, at every stage of a run.

Started as a program it is the run, in a name space of its own, where it may mount a disk: `python
-m tests.system.test_full_disk DISK SOURCE KIB` prints what happened as JSON.
"""

import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

import pytest

from autopipe.api.publish import publish_package
from autopipe.errors import AutopipeError
from autopipe.pipeline.stage import Context, Need
from autopipe.records.store import RecordStore
from autopipe.store.artifact import Kind
from tests.pipeline.fakes import Fake, Read, Upper, go
from tests.records.written import HERE, MODULE, record
from tests.store.test_sweeps import Packed

ROOT = Path(__file__).parents[2]
SOURCE = 100_000
"""Bytes of the model; most stages make as many again."""
LARGE = 6000
"""KiB of a disk on which all have place."""
STAGES = ["import", "lower", "tune", "package"]


class Record(Fake, frozen=True):
    """Keeps records as tuning does, and says outside of the disk how many are kept."""

    name: ClassVar[str] = "tune"
    produces: ClassVar[Kind] = Kind.RECORDS
    needs: ClassVar[Mapping[str, Need]] = {"lower": Need(Kind.LOWERED)}
    told: Path

    def unkeyed(self) -> frozenset[str]:
        return frozenset({"told"})

    def run(self, ctx: Context) -> str:
        with RecordStore.open(ctx.records, lambda _: None) as store:
            for done in range(40):
                store.add(HERE, MODULE, [record((1.0 + done,), schedule="x" * 2000)])
                self.told.write_text(f"{done + 1}")
        (ctx.out / "records").write_bytes((ctx.inputs["lower"] / "sub" / "text").read_bytes())
        return ""


class Pack(Fake, frozen=True):
    name: ClassVar[str] = "package"
    produces: ClassVar[Kind] = Kind.PACKAGE
    needs: ClassVar[Mapping[str, Need]] = {"tune": Need(Kind.RECORDS)}

    def run(self, ctx: Context) -> str:
        (ctx.out / "demo.tar").write_bytes((ctx.inputs["tune"] / "records").read_bytes() * 20)
        return ""


def attempt(disk: Path, source: Path) -> dict[str, object]:
    told = source.with_name("told")
    told.write_text("0")
    events: list[object] = []
    code, said = 0, ""
    try:
        stages = [Read(path=source), Upper(), Record(told=told), Pack()]
        _, made = go(stages, disk / "store", isolate=Packed(), events=events)  # type: ignore[arg-type]
        publish_package(made["package"].path, disk / "dist")
    except AutopipeError as error:
        code, said = error.exit_code, str(error)
    finished = [e.stage for e in events if e.event in {"stage_finished", "stage_cached"}]  # type: ignore[attr-defined]
    cached = [e.stage for e in events if e.event == "stage_cached"]  # type: ignore[attr-defined]
    published = [path.stat().st_size for path in disk.glob("dist/*")]
    return {
        "code": code, "said": said, "finished": finished, "cached": cached,
        "told": int(told.read_text()), "published": published,
    }  # fmt: skip


def kept(disk: Path) -> int:
    path = disk / "store" / "records" / "records.sqlite"
    if not path.exists():
        return 0
    with RecordStore.view(path) as store:
        assert store.damaged == 0
        return len(store.every())


def main(disk: Path, source: Path, sizes: list[int]) -> None:
    for size in sizes:
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}k", "x", disk], check=True)
        first = attempt(disk, source)
        records = kept(disk)
        subprocess.run(["mount", "-o", f"remount,size={2 * LARGE}k", disk], check=True)
        second = attempt(disk, source)
        subprocess.run(["umount", disk], check=True)
        sys.stdout.write(json.dumps({"first": first, "records": records, "second": second}) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), [int(size) for size in sys.argv[3:]])


def alone(*command: object) -> subprocess.CompletedProcess[str]:
    """Run a program in a name space of its own, in which it may mount."""
    argv = ["unshare", "--map-root-user", "--mount", *map(str, command)]
    return subprocess.run(argv, capture_output=True, text=True, check=False, cwd=ROOT)


@pytest.fixture
def disk(tmp_path: Path) -> Path:
    disk = tmp_path / "disk"
    disk.mkdir()
    if alone("mount", "-t", "tmpfs", "x", disk).returncode:
        pytest.skip("nothing may be mounted here")
    return disk


@pytest.mark.fault("C7", "G1", "G10")
def test_a_full_disk_at_any_stage_is_a_line_and_keeps_what_was_done(
    disk: Path, tmp_path: Path
) -> None:
    source = tmp_path / "model"
    source.write_bytes(os.urandom(SOURCE // 2).hex().encode())
    sizes = [40, *range(60, 1500, 60), *range(1500, 6000, 500), LARGE]
    done = alone(sys.executable, "-m", "tests.system.test_full_disk", disk, source, *sizes)
    assert done.returncode == 0, done.stderr
    runs = [json.loads(line) for line in done.stdout.splitlines()]
    failed_in = set()
    for size, run in zip(sizes, runs, strict=True):
        first, second = run["first"], run["second"]
        assert first["code"] in {0, 5}, (size, first)
        assert (first["code"] == 0) == (first["said"] == "")
        if first["code"]:
            assert first["said"].startswith(f"{disk}/"), first
            assert "\n" not in first["said"]
            assert re.search("no space (is )?left|is the disk full", first["said"], re.IGNORECASE)
            failed_in.add(
                STAGES[len(first["finished"])] if first["finished"] != STAGES else "publish"
            )
        assert first["published"] in ([], [20 * SOURCE])
        assert run["records"] >= first["told"]
        assert second["code"] == 0, second
        assert second["cached"] == first["finished"], "what was finished is not done again"
        assert second["published"] == [20 * SOURCE]
    assert runs[-1]["first"]["code"] == 0
    assert failed_in == {*STAGES, "publish"}
