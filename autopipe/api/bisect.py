"""Finds the first kernel of a build that is wrong, or the one that loses most time."""

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from autopipe.api.built_artifacts import find_artifacts
from autopipe.api.last_build import load_last
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
from autopipe.errors import ConfigError, StageError, StoreError
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
    """A build that is bisected."""

    artifacts: Mapping[str, Path]
    """Of *build*, and of the stages that it was made of, by stage."""
    options: Verify
    samples: Mapping[str, Path]
    """Files of real inputs by the names of their cases."""


def find_bisect_target(
    file: Path, *, store: Path | None = None, overrides: Sequence[str] = (),
    build: str | None = None,
) -> BisectTarget:  # fmt: skip
    """Return the last build of a pipeline file, verified or not.

    Raises ConfigError for a file without a build, TargetError for one that does not run here.
    """
    if file.is_file() and is_package(read_head(file)):
        raise ConfigError(f"{file} is a package; bisect takes the pipeline file that it is of")
    pipeline = load_last(file, overrides, build, store)
    artifacts = find_artifacts(pipeline, file, store, build)
    built = BuiltLibrary.read(artifacts["build"])
    machine.check(built.target)
    if not find_backend(built.target).runs_on_host:
        raise ConfigError(f"bisect takes builds for processors; {file} is built for {built.device}")
    options = pipeline.verify or Verify()
    samples = {name: file.absolute().parent / name for name in options.inputs}
    return BisectTarget(artifacts, options, samples)


def bisect_build(
    target: BisectTarget, *, case: str | None = None, to: Path | None = None
) -> Bisection:
    """Compare each kernel call of a build on the first case that is wrong, or of one name.

    Each is compared with its plain loops on the same inputs, and with the value that the reference
    runtime computes for it. `to` takes the first that is wrong. Raises ConfigError for a name that
    no case has, StoreError for `to`, StageError for what can not be run.
    """
    with _make_folder(to), tempfile.TemporaryDirectory(prefix="autopipe-") as scratch:
        work = Path(scratch)
        given, checked = _find_wrong_case(target, work, case)
        request = _build_request(target, work, given, to)
        nodes = NodeMap.read(target.artifacts["build"])
        values = work / "values"
        notes = _compute_values(target.artifacts["import"], work / _INPUTS, nodes, values)
        wrong = [f"{one.output}: {one.failure}" for one in checked.outputs if one.failure]
        request |= {"values": str(values) if values.exists() else None, "wrong": wrong}
        known = {
            "case": given.name, "sizes": dict(given.sizes), "wrong": tuple(wrong), "notes": notes,
        }  # fmt: skip
        try:
            answer = call.run_module(_PROGRAM, request)
        except StageError as error:
            crashed = _build_crash_bisection(known, work / _PROGRESS, nodes, str(error))
            if crashed is None:
                raise StageError(f"bisecting failed: {error}") from None
            if to is not None:
                with suppress(StageError):  # it crashes once more
                    _save_call(request, len(crashed.calls) - 1, crashed.calls[-1].nodes)
            return crashed
    runtime = _RUNTIME if request["values"] else None
    return Bisection.model_validate({**known, **answer, "runtime": runtime})


def find_slow_kernel(
    target: BisectTarget, *, case: str | None = None, to: Path | None = None,
    against: str | None = None,
) -> SlowKernels:  # fmt: skip
    """Rank the kernels of a build by the time that they lose against their bound, or `against`.

    `to` takes the worst, if one loses any. Raises ConfigError for a name that no case has,
    StoreError, StageError.
    """
    artifacts = target.artifacts
    nodes = NodeMap.read(artifacts["build"])
    model = artifacts["import"] / MODEL
    if against is not None and not model.exists():
        raise ConfigError(f"--against {against} runs ONNX models, and this is none")
    with _make_folder(to), tempfile.TemporaryDirectory(prefix="autopipe-") as scratch:
        work = Path(scratch)
        given = _first_case(target, case)
        files = {name: work / f"{at}.npy" for at, name in enumerate(given.arrays)}
        for name, file in files.items():
            np.save(file, given.arrays[name], allow_pickle=False)
        profiled = ProfileTarget(artifacts["build"], nodes, model)
        profile = profile_build(profiled, inputs=[f"{name}={file}" for name, file in files.items()])
        calls = nodes.named(profile.library).functions
        kernels = frozenset(one.kernel for body in calls for one in body.calls)
        if against is None:
            ranked = rank_by_bound(profile, kernels, given.name)
        else:
            times = profile_reference(model, profile.shapes, profile.threads, profile.runs)
            ranked = rank_by_reference(
                profile, kernels, given.name, nodes=nodes.nodes, runtime=against, times=times
            )
        if to is not None and (worst := ranked.worst) is not None:
            request = _build_request(target, work, given, to)
            _save_call(request, worst.position, worst.nodes, timed=True)
    return ranked


@contextmanager
def _make_folder(to: Path | None) -> Iterator[None]:
    """Make a folder before anything runs; take it away if nothing is written. Raises StoreError."""
    if to is None or to.is_dir():
        yield
        return
    try:
        to.mkdir(parents=True)
    except OSError as error:
        raise StoreError(f"{to}: {error.strerror}") from error
    try:
        yield
    finally:
        with suppress(OSError):  # it holds a call
            to.rmdir()


def _build_request(
    target: BisectTarget, work: Path, given: Case, to: Path | None
) -> dict[str, Any]:
    """Write the inputs of a case, and return what a child process is asked."""
    arrays.save(given.arrays, work / _INPUTS)
    return {
        "artifacts": {stage: str(path) for stage, path in target.artifacts.items()},
        "inputs": str(work / _INPUTS), "generic": given.generic,
        "progress": str(work / _PROGRESS), "to": None if to is None else str(to.absolute()),
        "position": None, "timed": False, "values": None, "wrong": [],
    }  # fmt: skip


def _first_case(target: BisectTarget, name: str | None) -> Case:
    """Return the first case of a build, or that of a name."""
    built = BuiltLibrary.read(target.artifacts["build"])
    source = CaseSource(built.signature, target.artifacts["import"], target.options)
    return source.find_case(target.samples, name)


def _find_wrong_case(
    target: BisectTarget, work: Path, name: str | None
) -> tuple[Case, CheckedCase]:
    built = BuiltLibrary.read(target.artifacts["build"])
    with ContainedBuild(target.artifacts["build"], work, built.target) as model:
        return find_wrong_case(
            model, target.artifacts["import"], target.options, work, target.samples, name=name
        )


def _compute_values(imported: Path, inputs: Path, nodes: NodeMap, out: Path) -> tuple[str, ...]:
    """Have the reference runtime write the values that kernel calls make; return why it did not."""
    if not (imported / MODEL).exists():
        return ("the model is not ONNX: kernels are compared with their plain loops alone",)
    computed = {
        node for library in nodes.libraries for body in library.functions
        for site in body.calls for node in site.nodes if node < len(nodes.nodes)
    }  # fmt: skip
    names = [name for node in computed for name in nodes.nodes[node].outputs]
    try:
        compute_values(imported, inputs, names, out)
    except StageError as error:
        return (str(error),)
    return ()


def _build_crash_bisection(
    known: Mapping[str, Any], progress: Path, nodes: NodeMap, why: str
) -> Bisection | None:
    """Return the calls up to one that did not return; None where all of them did."""
    told = progress.read_text(encoding="utf-8").splitlines() if progress.exists() else []
    if not told or told[-1] == "done":
        return None
    library = told[-1].partition(" ")[0]
    kernels = [line.partition(" ")[2] for line in told]
    sites = match_sites(kernels, nodes.named(library))
    calls = tuple(
        BisectedCall(
            kernel=kernel, nodes=name_nodes(nodes, site), added=site.added, scheduled="unknown"
        )
        for kernel, site in zip(kernels, sites, strict=True)
    )
    last = len(calls) - 1
    notes = (*known["notes"], why)
    return Bisection.model_validate(
        {**known, "notes": notes, "library": library, "calls": calls, "first": last,
         "cause": Cause.CRASH}
    )  # fmt: skip


def _save_call(
    request: call.Answer, position: int, nodes: Sequence[str], *, timed: bool = False
) -> None:
    """Write a folder with the call at a position. Raises StageError."""
    more = {"position": position, "nodes": list(nodes), "timed": timed}
    call.run_module(_PROGRAM, {**request, **more})
