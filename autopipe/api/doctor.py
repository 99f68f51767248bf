"""`autopipe doctor`: check the dependencies of autopipe on this machine, with remedies."""

import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

import psutil

from autopipe import extensions, libraries
from autopipe.compiler import tvm_probe
from autopipe.config.pipeline import Pipeline
from autopipe.config.target import Target
from autopipe.config.tuning import Measure
from autopipe.environment.environment import find_requirement
from autopipe.environment.toolchain import find_linker
from autopipe.errors import AutopipeError
from autopipe.host.control_groups import read_cpu_quota
from autopipe.measure.tracker import Tracker, Unreached
from autopipe.pipeline.isolate import Bug, Entry, Zygote
from autopipe.processes import seccomp

_GIB: Final = 2**30
_TVM: Final = "autopipe.compiler.import_tvm"


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """The result of one check."""

    state: Literal["ok", "warn", "fail"]
    what: str
    detail: str
    advice: str = ""

    def __str__(self) -> str:
        """Format the result as one line."""
        advice = f" - {self.advice}" if self.advice and self.state != "ok" else ""
        return f"{self.state:<4}  {self.what:<12}  {self.detail}{advice}"


@dataclass(frozen=True, slots=True)
class Check:
    """A check that runs in a child process."""

    what: str
    entry: Entry[str]
    argument: Mapping[str, Any]
    advice: str
    needed: bool = True
    tvm: bool = True


def diagnose_machine(
    tvm: Zygote | None = None, pipeline: Pipeline | None = None
) -> Iterator[Diagnosis]:
    """Run all checks, each in a child process of its own, and yield their results in order.

    With a pipeline, its linker is checked, too, and the devices of its tracker are listed.
    """
    with (
        tempfile.TemporaryDirectory(prefix="autopipe-") as folder,
        tvm or Zygote((_TVM,), Path(folder)) as with_tvm,
        Zygote((), Path(folder)) as without,
    ):
        for check in (
            *_list_checks(),
            *_list_linker_checks(pipeline.target if pipeline else Target()),
        ):
            yield _run_check(check, with_tvm if check.tvm else without, Path(folder, "log"))
    if pipeline is not None and pipeline.tuning and pipeline.tuning.measure.tracker is not None:
        yield _diagnose_devices(pipeline.tuning.measure)
    yield diagnose_threads()
    yield _diagnose_space("disk", shutil.disk_usage(Path.cwd()).free, "free here", 5)
    yield _diagnose_space("memory", psutil.virtual_memory().available, "free", 2)


def _list_checks() -> tuple[Check, ...]:
    """List the checks of any machine."""
    pins = f"pip install {find_requirement('apache-tvm')} {find_requirement('apache-tvm-ffi')}"
    onnxruntime = "only verify and benchmark want it: pip install 'autopipe[onnxruntime]'"
    tuning = "pip install xgboost-cpu psutil cloudpickle"
    modules = ["xgboost", "psutil", "cloudpickle"]
    return (
        Check("tvm", tvm_probe.import_modules, {"modules": ["tvm", "tvm_ffi"]}, pins),
        Check("tvm-ffi", tvm_probe.check_compatibility, {}, pins),
        Check("processor", tvm_probe.check_processor, {}, "set target.mcpu to its nearest "
                                                          "relative"),
        Check(
            "linker", tvm_probe.check_linking, {"linker": find_linker()},
            "install a C++ compiler, such as g++, or name one in CXX",
        ),
        Check("tuning", tvm_probe.import_modules, {"modules": modules}, tuning, tvm=False),
        Check(
            "onnx", tvm_probe.import_modules, {"modules": ["onnx"]}, "pip install onnx", tvm=False
        ),
        Check(
            "onnxruntime", tvm_probe.import_modules, {"modules": ["onnxruntime"]}, onnxruntime,
            needed=False, tvm=False,
        ),
        Check("cuda", tvm_probe.check_cuda, {}, "pip install 'autopipe[cuda]'", needed=False),
        Check(
            "sandbox", seccomp.check_seccomp, {},
            "run it where the kernel has seccomp, or read models of strangers before it does",
            needed=False, tvm=False,
        ),
        Check(
            "libraries", libraries.check_libraries, {}, "repair or uninstall that library",
            needed=False, tvm=False,
        ),
        Check("extensions", extensions.check_extensions, {}, "repair or uninstall that package"),
    )  # fmt: skip


def _list_linker_checks(target: Target) -> tuple[Check, ...]:
    """List the check of the linker that a target names, if any."""
    if target.linker is None:
        return ()
    advice = "name a compiler that links for target.mtriple, and a target.sysroot if it needs one"
    target_fields = target.model_dump(mode="json", include={"mcpu", "mattr", "mtriple"})
    linker_fields = {"linker": target.linker, "sysroot": target.sysroot}
    return (
        Check("target", tvm_probe.check_cross_linking, {**target_fields, **linker_fields}, advice),
    )


def _diagnose_devices(measure: Measure) -> Diagnosis:
    """Check whether the tracker of a pipeline has devices of its key."""
    tracker = Tracker(str(measure.tracker), measure.connect_timeout)
    advice = f"start the server of a device of the key {measure.key}"
    try:
        state: Literal["ok", "fail"] = "ok" if measure.key in tracker.known_keys() else "fail"
        return Diagnosis(state, "devices", tracker.describe_keys(), advice)
    except Unreached as error:
        return Diagnosis("fail", "devices", str(error), "start TVM's RPC tracker there")


def _run_check(check: Check, zygote: Zygote, log: Path) -> Diagnosis:
    try:
        detail = zygote.call(check.entry, check.argument, log, lambda _: None)
    except (AutopipeError, Bug) as error:
        lines = str(error).strip().splitlines()
        reason = lines[-1] if isinstance(error, Bug) else lines[0]
        return Diagnosis("fail" if check.needed else "warn", check.what, reason, check.advice)
    return Diagnosis("ok", check.what, detail)


def diagnose_threads() -> Diagnosis:
    """Compare the cores that this process may use with the container's quota."""
    cores = len(os.sched_getaffinity(0))
    quota = read_cpu_quota()
    if quota is not None and quota < cores:
        detail = f"{cores} cores, but time for {quota:g} only"
        return Diagnosis("warn", "threads", detail, f"set target.num_cores to {max(1, int(quota))}")
    return Diagnosis("ok", "threads", f"{cores} cores")


def _diagnose_space(what: str, size: int, state: str, needed: int) -> Diagnosis:
    """Compare free bytes with the GiB that a large model takes."""
    advice = f"a large model takes {needed} GiB"
    detail = f"{size / _GIB:.1f} GiB {state}"
    return Diagnosis("ok" if size >= needed * _GIB else "warn", what, detail, advice)
