"""Whole runs of the command line with little room to write, for `test_writers.py`.

Started as a program, it makes the runs: `python -m tests.system.writers KIND FOLDER SIZE...`,
where a size is in KiB, or for `descriptors` a number of them. Each line that it prints says how one
went, as JSON. One process with TVM makes all the runs, so that a run takes seconds.
"""

import contextlib
import errno
import io
import json
import mmap
import os
import resource
import shutil
import struct
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from autopipe.pipeline.isolate import Zygote

ROOT = Path(__file__).parents[2]

SHORT = {"ENOSPC": errno.ENOSPC, "EDQUOT": errno.EDQUOT, "EFBIG": errno.EFBIG, "EIO": errno.EIO}
"""Kinds that a library in front of libc makes, for all bytes that are written."""

KINDS = ("disk", "file", "descriptors", *SHORT)
"""`disk` is a full one, `file` a limit on the size of a file."""

PIPELINE = """\
version: 1
name: one
model: {path: model/one.onnx}
tuning: {budget: {trials: 2, time: 10m}}
benchmark: null
"""

PRELOADED = (
    "tvm", "onnx", "xgboost", "safetensors.numpy", "autopipe.stages",
    "autopipe.compiler.library.build", "autopipe.tuning.run",
    "autopipe.compiler.frontends.onnx.load", "autopipe.measure.check",
    "autopipe.measure.timing", "autopipe.verification.check",
)  # fmt: skip


@dataclass(frozen=True)
class Ended:
    """How a command ended."""

    code: int
    said: str
    """What it printed on standard error."""
    finished: tuple[str, ...]
    """Stages that made a result."""
    cached: tuple[str, ...]
    """Stages whose result was there."""


class Kept(Zygote):
    """One process for all runs; `TMPDIR` is the disk's."""

    def close(self) -> None:
        """Stay, unless a call is not over: the next run uses it."""
        if self._child is not None:
            super().close()

    def stop(self) -> None:
        super().close()

    @property
    def pid(self) -> int:
        return self._process.pid if self._process else os.getpid()


def save_model(path: Path) -> None:
    """Write a model of one layer with 256 KiB of weights."""
    import numpy as np
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    weights = np.random.default_rng(1).standard_normal((256, 256)).astype("float32")
    ports = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [4, 256]) for name in "xy"]
    nodes = [helper.make_node("MatMul", ["x", "w"], ["d"]), helper.make_node("Relu", ["d"], ["y"])]
    graph = helper.make_graph(
        nodes, "one", ports[:1], ports[1:], [numpy_helper.from_array(weights, "w")]
    )
    opset = [helper.make_opsetid("", 17)]
    onnx.save(helper.make_model(graph, opset_imports=opset, ir_version=8), path)


def command(*arguments: object) -> Ended:
    """Run a command of the command line in this process."""
    from autopipe.cli import app

    out, err, code = io.StringIO(), io.StringIO(), 0
    before, sys.argv = sys.argv, ["autopipe", *map(str, arguments)]
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            app.main()
    except SystemExit as error:
        code = int(error.code or 0)
    finally:
        sys.argv = before
    events = []
    for line in out.getvalue().splitlines():
        with contextlib.suppress(ValueError):
            events.append(json.loads(line))
    stages = {
        kind: tuple(e["stage"] for e in events if isinstance(e, dict) and e.get("event") == kind)
        for kind in ("stage_finished", "stage_cached")
    }
    return Ended(code, err.getvalue(), stages["stage_finished"], stages["stage_cached"])


def little(
    kind: str, disk: Path, size: int, zygote: Kept
) -> contextlib.AbstractContextManager[None]:
    """Leave so much room inside."""
    if kind == "disk":
        return _full(disk, size)
    if kind == "file":
        return _limited(resource.RLIMIT_FSIZE, size << 10, zygote)
    if kind == "descriptors":
        return _limited(resource.RLIMIT_NOFILE, size, zygote)
    return _short(size << 10, SHORT[kind])


@contextlib.contextmanager
def _full(disk: Path, size: int) -> Iterator[None]:
    def remount(kib: int) -> None:
        subprocess.run(["mount", "-o", f"remount,size={kib}k", disk], check=True)

    remount(size)
    try:
        yield
    finally:
        remount(1 << 16)


@contextlib.contextmanager
def _limited(kind: int, size: int, zygote: Kept) -> Iterator[None]:
    pids = {os.getpid(), zygote.pid}
    before = {pid: resource.prlimit(pid, kind) for pid in pids}
    for pid in pids:
        resource.prlimit(pid, kind, (size, before[pid][1]))
    try:
        yield
    finally:
        for pid in pids:
            resource.prlimit(pid, kind, before[pid])


@contextlib.contextmanager
def _short(size: int, code: int) -> Iterator[None]:
    with Path(os.environ["AUTOPIPE_SHORT_CONTROL"]).open("r+b") as file:
        control = mmap.mmap(file.fileno(), 16)
    control[:16] = struct.pack("qq", size, code)
    try:
        yield
    finally:
        control[:16] = struct.pack("qq", -1, 0)


def attempts(
    kind: str, folder: Path, sizes: Sequence[int], tell: Callable[[dict[str, object]], object]
) -> None:
    """Run with each size, then again with room, and tell how both went."""
    from autopipe.api import flow

    disk = folder / "disk"
    disk.mkdir(exist_ok=True)
    if kind == "disk":
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64m", "x", disk], check=True)
    (disk / "tmp").mkdir()
    os.environ["TMPDIR"] = str(disk / "tmp")
    tempfile.tempdir = None
    (folder / "model").mkdir()
    save_model(folder / "model" / "one.onnx")
    zygote = Kept(PRELOADED, disk / "tmp")
    vars(flow)["Zygote"] = lambda *_: zygote
    try:
        _prepare(folder, disk)
        warm = command(
            "run", disk / "one.yaml", "--json", "--store", disk / "store", "--until", "import"
        )
        assert warm.code == 0, warm.said
        shutil.copytree(disk / "store" / "environments", folder / "environments")
        for size in sizes:
            _prepare(folder, disk)
            run = (
                "run",
                disk / "one.yaml",
                "--json",
                "--store",
                disk / "store",
                "--output",
                disk / "dist",
            )
            reports = ("--report", disk / "report.json")
            with little(kind, disk, size, zygote):
                first = command(*run, *reports)
            second = command(*run, *reports)
            checks = [
                command("cache", "verify", "--store", disk / "store"),
                command("verify", disk / "dist" / "one.tar", "--lock", disk / "one.lock"),
                command(
                    "run",
                    disk / "one.yaml",
                    "--frozen",
                    "--json",
                    "--store",
                    disk / "store",
                    "--output",
                    disk / "dist",
                ),
            ]
            left = sorted(
                path.name
                for path in [
                    *disk.iterdir(),
                    *disk.glob("tmp/*"),
                    *disk.glob("dist/*"),
                    *disk.glob("store/tmp/*"),
                ]
            )
            tell({
                "size": size, "first": asdict(first), "second": asdict(second),
                "checks": [asdict(check) for check in checks], "left": left,
            })  # fmt: skip
    finally:
        zygote.stop()
        if kind == "disk":
            subprocess.run(["umount", disk], check=True)


def _prepare(folder: Path, disk: Path) -> None:
    """Leave the pipeline file alone on the disk, and what was found out about TVM."""
    for path in disk.iterdir():
        if path.name != "tmp":
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    (disk / "one.yaml").write_text(PIPELINE.replace("model/one.onnx", f"{folder}/model/one.onnx"))
    if (folder / "environments").is_dir():
        (disk / "store").mkdir(mode=0o700)
        shutil.copytree(folder / "environments", disk / "store" / "environments")


if __name__ == "__main__":
    attempts(
        sys.argv[1], Path(sys.argv[2]), [int(size) for size in sys.argv[3:]],
        lambda found: print(json.dumps(found), flush=True),  # noqa: T201
    )  # fmt: skip
