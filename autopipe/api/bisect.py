"""Find the first wrong kernel of a build, or the kernel that loses most time."""

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from autopipe.api.last_build import find_last_build
from autopipe.api.profile import ProfileTarget, profile_build
from autopipe.artifacts.library import BuiltLibrary
from autopipe.artifacts.model_nodes import NodeMap
from autopipe.artifacts.verification import CheckedCase
from autopipe.backends import find_backend
from autopipe.bisection.bisection import BisectedCall, Bisection, Cause
from autopipe.bisection.reference_values import compute_values
from autopipe.bisection.slow_kernels import SlowKernels, rank_by_bound, rank_by_reference
from autopipe.compiler.target import machine
from autopipe.config.verify import Verify
from autopipe.errors import ConfigError, StageError, StoreError, convert_os_errors
from autopipe.lock.recognize import is_package, read_head
from autopipe.processes import call
from autopipe.profiling.profile import match_sites, name_nodes
from autopipe.profiling.reference_profile import profile_reference
from autopipe.store import arrays
from autopipe.verification.case_source import CaseSource
from autopipe.verification.check import find_wrong_case
from autopipe.verification.contained_build import ContainedBuild
from autopipe.verification.inputs import Case
from autopipe.verification.reference import MODEL

_RUNTIME: Final = "onnxruntime"
_PROGRAM: Final = "autopipe.bisection.compare_calls"
_INPUTS, _PROGRESS = "inputs", "progress"
"""Files of a scratch folder."""


@dataclass(frozen=True, slots=True)
class BisectTarget:
    """The artifacts and the verification options of a build to bisect."""

    artifacts: Mapping[str, Path]
    """The artifacts of *build* and of the stages before it, by stage."""
    options: Verify
    samples: Mapping[str, Path]
    """Files of real inputs, by case name."""


def find_bisect_target(
    file: Path, *, store: Path | None = None, overrides: Sequence[str] = (),
    build: str | None = None,
) -> BisectTarget:  # fmt: skip
    """Find the last build of a pipeline file, verified or not.

    Raises ConfigError for a file without a build, TargetError for a build that cannot run here.
    """
    if file.is_file() and is_package(read_head(file)):
        raise ConfigError(f"{file} is a package; bisect takes the pipeline file that it is of")
    pipeline, _, artifacts = find_last_build(file, store=store, overrides=overrides, build=build)
    built_library = BuiltLibrary.read(artifacts["build"])
    machine.check(built_library.target)
    if not find_backend(built_library.target).runs_on_host:
        raise ConfigError(
            f"bisect takes builds for processors; {file} is built for {built_library.device}"
        )
    options = pipeline.verify or Verify()
    samples = {name: file.absolute().parent / name for name in options.inputs}
    return BisectTarget(artifacts, options, samples)


def bisect_build(
    target: BisectTarget, *, case: str | None = None, to: Path | None = None
) -> Bisection:
    """Compare each kernel call of a build on the first wrong case, or on a named case.

    Each call is compared with its unscheduled loops on the same inputs, and with the reference
    runtime's value. The first wrong call is written to the folder `to`. Raises ConfigError for an
    unknown case name, StoreError for `to`, StageError where the build or the reference cannot run.
    """
    with _make_folder(to), tempfile.TemporaryDirectory(prefix="autopipe-") as scratch:
        work = Path(scratch)
        wrong_case, checked_case = _find_wrong_case(target, work, case)
        request = _build_request(target, work, wrong_case, to)
        nodes = NodeMap.read(target.artifacts["build"])
        values = work / "values"
        notes = _compute_values(target.artifacts["import"], work / _INPUTS, nodes, values)
        wrong = [f"{one.output}: {one.failure}" for one in checked_case.outputs if one.failure]
        request |= {"values": str(values) if values.exists() else None, "wrong": wrong}
        case_fields = {
            "case": wrong_case.name, "sizes": dict(wrong_case.sizes), "wrong": tuple(wrong),
            "notes": notes,
        }  # fmt: skip
        try:
            answer = call.run_module(_PROGRAM, request)
        except StageError as error:
            bisection = _build_crash_bisection(case_fields, work / _PROGRESS, nodes, str(error))
            if bisection is None:
                raise StageError(f"bisecting failed: {error}") from None
            if to is not None:
                with suppress(StageError):  # it crashes again
                    _save_call(request, len(bisection.calls) - 1, bisection.calls[-1].nodes)
            return bisection
    runtime = _RUNTIME if request["values"] else None
    return Bisection.model_validate({**case_fields, **answer, "runtime": runtime})


def find_slow_kernel(
    target: BisectTarget, *, case: str | None = None, to: Path | None = None,
    against: str | None = None,
) -> SlowKernels:  # fmt: skip
    """Rank the kernels of a build by their time lost against their bound, or runtime `against`.

    The worst call is written to the folder `to`, if one loses any time. Raises ConfigError for an
    unknown case name, StoreError, StageError.
    """
    artifacts = target.artifacts
    nodes = NodeMap.read(artifacts["build"])
    model = artifacts["import"] / MODEL
    if against is not None and not model.exists():
        raise ConfigError(f"--against {against} runs ONNX models, and this is none")
    with _make_folder(to), tempfile.TemporaryDirectory(prefix="autopipe-") as scratch:
        work = Path(scratch)
        first_case = _first_case(target, case)
        files = {name: work / f"{at}.npy" for at, name in enumerate(first_case.arrays)}
        for name, file in files.items():
            np.save(file, first_case.arrays[name], allow_pickle=False)
        profile_target = ProfileTarget(artifacts["build"], nodes, model)
        profile = profile_build(
            profile_target, inputs=[f"{name}={file}" for name, file in files.items()]
        )
        calls = nodes.named(profile.library).functions
        kernels = frozenset(one.kernel for body in calls for one in body.calls)
        if against is None:
            slow_kernels = rank_by_bound(profile, kernels, first_case.name)
        else:
            times = profile_reference(model, profile.shapes, profile.threads, profile.runs)
            slow_kernels = rank_by_reference(
                profile, kernels, first_case.name, nodes=nodes.nodes, runtime=against, times=times
            )
        if to is not None and (worst := slow_kernels.worst) is not None:
            request = _build_request(target, work, first_case, to)
            _save_call(request, worst.position, worst.nodes, timed=True)
    return slow_kernels


@contextmanager
def _make_folder(to: Path | None) -> Iterator[None]:
    """Create a folder before anything runs; remove it if it stays empty. Raises StoreError."""
    if to is None or to.is_dir():
        yield
        return
    with convert_os_errors(StoreError, to):
        to.mkdir(parents=True)
    try:
        yield
    finally:
        with suppress(OSError):  # it holds a call
            to.rmdir()


def _build_request(target: BisectTarget, work: Path, case: Case, to: Path | None) -> dict[str, Any]:
    """Write the inputs of a case, and build the request for a child process."""
    arrays.save(case.arrays, work / _INPUTS)
    return {
        "artifacts": {stage: str(path) for stage, path in target.artifacts.items()},
        "inputs": str(work / _INPUTS), "generic": case.generic,
        "progress": str(work / _PROGRESS), "to": None if to is None else str(to.absolute()),
        "position": None, "timed": False, "values": None, "wrong": [],
    }  # fmt: skip


def _first_case(target: BisectTarget, name: str | None) -> Case:
    """Return the first case of a build, or the named one."""
    built_library = BuiltLibrary.read(target.artifacts["build"])
    source = CaseSource(built_library.signature, target.artifacts["import"], target.options)
    return source.find_case(target.samples, name)


def _find_wrong_case(
    target: BisectTarget, work: Path, name: str | None
) -> tuple[Case, CheckedCase]:
    built_library = BuiltLibrary.read(target.artifacts["build"])
    with ContainedBuild(target.artifacts["build"], work, built_library.target) as model:
        return find_wrong_case(
            model, target.artifacts["import"], target.options, work, target.samples, name=name
        )


def _compute_values(
    import_artifact: Path, inputs: Path, nodes: NodeMap, out: Path
) -> tuple[str, ...]:
    """Compute the reference values of all kernel calls; return the reason where that fails."""
    if not (import_artifact / MODEL).exists():
        return ("the model is not ONNX: kernels are compared with their plain loops alone",)
    computed_nodes = {
        node for library in nodes.libraries for body in library.functions
        for site in body.calls for node in site.nodes if node < len(nodes.nodes)
    }  # fmt: skip
    names = [name for node in computed_nodes for name in nodes.nodes[node].outputs]
    try:
        compute_values(import_artifact, inputs, names, out)
    except StageError as error:
        return (str(error),)
    return ()


def _build_crash_bisection(
    case_fields: Mapping[str, Any], progress: Path, nodes: NodeMap, why: str
) -> Bisection | None:
    """Build the bisection that ends at the crashing call; None where all calls returned."""
    progress_lines = progress.read_text(encoding="utf-8").splitlines() if progress.exists() else []
    if not progress_lines or progress_lines[-1] == "done":
        return None
    library = progress_lines[-1].partition(" ")[0]
    kernels = [line.partition(" ")[2] for line in progress_lines]
    sites = match_sites(kernels, nodes.named(library))
    calls = tuple(
        BisectedCall(
            kernel=kernel, nodes=name_nodes(nodes, site), added=site.added, scheduled="unknown"
        )
        for kernel, site in zip(kernels, sites, strict=True)
    )
    last = len(calls) - 1
    notes = (*case_fields["notes"], why)
    return Bisection.model_validate(
        {**case_fields, "notes": notes, "library": library, "calls": calls, "first": last,
         "cause": Cause.CRASH}
    )  # fmt: skip


def _save_call(
    request: call.Answer, position: int, nodes: Sequence[str], *, timed: bool = False
) -> None:
    """Write a folder with the call at a position. Raises StageError."""
    position_fields = {"position": position, "nodes": list(nodes), "timed": timed}
    call.run_module(_PROGRAM, {**request, **position_fields})
