"""Runs a build and compares each kernel call: the main program of a child process."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, cast

import numpy as np
import tvm
from safetensors import safe_open
from safetensors.numpy import load_file

from autopipe.artifacts.library import BuiltLibrary
from autopipe.artifacts.lowering import SizedModules
from autopipe.artifacts.model import ImportedModel
from autopipe.artifacts.model_nodes import PACKED, KernelCall, NodeMap
from autopipe.artifacts.signature import LIBRARY
from autopipe.bisection.bisection import BisectedCall, Cause
from autopipe.bisection.call_folder import (
    ACTUAL,
    EXPECTED,
    INPUTS,
    SavedCall,
    describe_arguments,
    save_arrays,
    save_call,
)
from autopipe.bisection.call_values import GraphValues
from autopipe.bisection.captured_run import (
    CallRecorder,
    CapturedCall,
    OutputRecorder,
    run_watched,
)
from autopipe.bisection.differences import measure_value
from autopipe.bisection.first_wrong import find_first
from autopipe.bisection.plain_twin import PlainTwin, count_outputs
from autopipe.compiler import module_io
from autopipe.compiler.library.kernel_threads import use_threads
from autopipe.compiler.library.model_instances import Instance
from autopipe.compiler.library.plain_reference import make_size_arguments
from autopipe.compiler.library.prepared_run import PreparedRun
from autopipe.compiler.library.runtime import load_artifact
from autopipe.compiler.target.target import make_target
from autopipe.compiler.tasks import make_workload
from autopipe.measure.call_watch import CallWatch
from autopipe.processes import call
from autopipe.profiling.profile import match_sites, name_nodes
from autopipe.schedules.model_weights import ModelWeights
from autopipe.verification.reference import MODEL


@dataclass(frozen=True)
class _Job:
    """A request: paths of artifacts, and the inputs."""

    request: call.Answer
    built: BuiltLibrary
    nodes: NodeMap
    lowered: Mapping[str, tvm.IRModule]
    """By the library that is built of each."""

    @classmethod
    def of(cls, request: call.Answer) -> "_Job":
        """Read the artifacts."""
        build, lower = (Path(request["artifacts"][stage]) for stage in ("build", "lower"))
        sized_modules = SizedModules.within(lower).modules
        libraries = {"": LIBRARY, **{one.label: one.library for one in sized_modules}}
        lowered_modules = module_io.load_lowered(lower)
        modules = {libraries[label]: module for label, module in lowered_modules.items()}
        return cls(request, BuiltLibrary.read(build), NodeMap.read(build), modules)

    def folder(self, stage: str) -> Path:
        """Return the artifact of a stage."""
        return Path(self.request["artifacts"][stage])

    def run(self, watch_of: Callable[[str], CallWatch]) -> PreparedRun:
        """Load the build, and run it under the watch of each library."""
        model = cast("Instance", load_artifact(self.folder("build")))
        arrays = load_file(self.request["inputs"])
        run_watched(model, arrays, watch_of, generic=bool(self.request["generic"]))
        return PreparedRun(model)

    def arguments(self) -> list[object]:
        """Return the arguments of `main` that precede its weights."""
        arrays = load_file(self.request["inputs"])
        tensors = [tvm.runtime.tensor(arrays[port.name]) for port in self.built.inputs]
        return [*tensors, *make_size_arguments(self.built, arrays)]

    def outputs(self, library: str) -> dict[str, int]:
        """Return how many outputs each kernel of a library has."""
        output_counts = count_outputs(self.lowered[library])
        bodies = self.nodes.named(library).functions
        calls = [one.kernel for body in bodies for one in body.calls]
        return {name: output_counts.get(name.removesuffix(PACKED), 1) for name in calls}

    def loops(self, library: str, kernel: str) -> tvm.tirx.PrimFunc | None:
        """Return the plain loops of a kernel; None for one that only the build has."""
        module, name = self.lowered[library], kernel.removesuffix(PACKED)
        names = {str(var.name_hint) for var in module.get_global_vars()}
        return module[name] if name in names else None

    def scheduled(self, library: str, kernel: str) -> str:
        """Return which engine scheduled a kernel on which implementation."""
        loops = self.loops(library, kernel)
        identity = None if loops is None else make_workload(loops).identity
        candidates = (one for one in self.built.tasks if one.workload == identity)
        return next((f"{one.engine} on {one.implementation}" for one in candidates), "the compiler")


def _compare_calls(job: _Job) -> call.Answer:
    """Compare all calls, find the first wrong one, and save it if the request names a folder."""
    recorders: dict[str, OutputRecorder] = {}
    with Path(job.request["progress"]).open("ab", buffering=0) as progress:

        def watch(library: str) -> OutputRecorder:
            on_begin = partial(_log_call, progress, library)
            recorders[library] = OutputRecorder(job.outputs(library), on_begin)
            return recorders[library]

        run = job.run(watch)
        progress.write(b"done\n")
    library, target = run.library, job.built.target
    captured_calls = recorders[library].calls
    weights = ModelWeights(job.folder("import"), job.folder("optimize"), target["num_cores"])
    twin = PlainTwin(job.lowered[library], weights, make_target(target))
    loops = twin.compare(job.arguments(), captured_calls)
    sites = match_sites([one.kernel for one in captured_calls], job.nodes.named(library))
    values = _ReferenceValues.of(job, sites)
    calls = []
    for at, (site, captured) in enumerate(zip(sites, captured_calls, strict=True)):
        loops_result = loops.get(at)
        calls.append(
            BisectedCall(
                kernel=captured.kernel,
                nodes=name_nodes(job.nodes, site),
                added=site.added,
                scheduled=job.scheduled(library, captured.kernel),
                sources=captured.sources,
                plain=None if loops_result is None else loops_result.difference,
                **values.compare(at, captured),
            )
        )
    first, cause = find_first(calls, wrong_outputs=bool(job.request["wrong"]))
    if first is not None and job.request["to"]:
        by_loops = cause is Cause.LOOPS
        expected_outputs = loops[first].expected if by_loops else values.expected(first)
        _save_call(job, first, calls[first].nodes, expected_outputs)
    return {
        "library": library, "calls": [one.document() for one in calls],
        "first": first, "cause": cause,
    }  # fmt: skip


def _log_call(progress: BinaryIO, library: str, kernel: str) -> None:
    progress.write(f"{library} {kernel}\n".encode())


class _ReferenceValues:
    """Values of the model that calls compute, as the reference runtime computes them."""

    def __init__(
        self, file: Path | None, names: Sequence[tuple[str, ...]], *, coarse: bool
    ) -> None:
        self._file, self._names, self._coarse = file, names, coarse
        self._expected: dict[int, np.ndarray] = {}

    @classmethod
    def of(cls, job: _Job, sites: Sequence[KernelCall]) -> "_ReferenceValues":
        """Read the values for the calls of a run; none if the request has no file of values."""
        steps = ImportedModel.read(job.folder("import")).promises.rounds_to_steps
        coarse = bool(job.built.rounded or job.built.short or steps)
        if job.request["values"] is None:
            return cls(None, [()] * len(sites), coarse=coarse)
        names = GraphValues.read(job.folder("import") / MODEL).of_calls(sites)
        return cls(Path(job.request["values"]), names, coarse=coarse)

    def compare(self, at: int, call: CapturedCall) -> dict[str, Any]:
        """Compare a call with its reference value; of several values, with the nearest one."""
        candidates: list[tuple[float, str, Any, np.ndarray]] = []
        for name in self._names[at] if len(call.outputs) == 1 else ():
            value = self._read(name)
            ours = call.outputs[0].numpy()
            best = None if value is None else measure_value(value, ours, coarse=self._coarse)
            if best is not None:
                size = best[0].max_rel
                candidates.append((np.inf if size is None else size, name, *best))
        if not candidates:
            return {}
        _, name, difference, laid_out = min(candidates, key=lambda one: one[0])
        if not difference.agrees:
            self._expected[at] = laid_out
        return {"tensor": name, "reference": difference}

    def expected(self, at: int) -> tuple[np.ndarray, ...]:
        """Return the reference value of a wrong call, in the layout of its output."""
        return (self._expected[at],)

    def _read(self, name: str) -> np.ndarray | None:
        with safe_open(self._file, framework="np") as file:
            return file.get_tensor(name) if name in file.keys() else None  # noqa: SIM118 - no mapping


def _save_call(
    job: _Job, position: int, nodes: tuple[str, ...], expected_outputs: Sequence[np.ndarray] = ()
) -> call.Answer:
    """Write a folder with the call at a position; its inputs are written before it runs."""
    folder = Path(job.request["to"])
    recorders: dict[str, CallRecorder] = {}

    def watch(library: str) -> CallRecorder:
        begin = partial(_save_call_inputs, job, library, nodes)
        recorders[library] = CallRecorder(job.outputs(library), position, begin)
        return recorders[library]

    run = job.run(watch)
    save_arrays(
        folder / ACTUAL, _number_arrays([one.numpy() for one in recorders[run.library].made])
    )
    if expected_outputs:
        save_arrays(folder / EXPECTED, _number_arrays(expected_outputs))
    return {}


def _save_call_inputs(
    job: _Job, library: str, nodes: tuple[str, ...], kernel: str, arguments: Sequence[Any]
) -> None:
    """Write the arguments of a call before it runs, because it may crash."""
    folder, count = Path(job.request["to"]), job.outputs(library)[kernel]
    loops = job.loops(library, kernel)
    saved_call = SavedCall(
        kernel=kernel, library=library, nodes=nodes, threads=job.built.threads,
        arguments=describe_arguments(arguments), outputs=count, timed=bool(job.request["timed"]),
    )  # fmt: skip
    script = "" if loops is None else loops.script()
    save_call(folder, saved_call, job.folder("build"), script)
    places = [at for at, one in enumerate(arguments) if not isinstance(one, int)]
    inputs = {str(at): arguments[at].numpy() for at in places[:-count]}
    save_arrays(folder / INPUTS, inputs)


def _number_arrays(arrays: Sequence[np.ndarray]) -> Mapping[str, np.ndarray]:
    return {str(at): np.asarray(array) for at, array in enumerate(arrays)}


def _answer_request(request: call.Answer) -> call.Answer:
    job = _Job.of(request)
    use_threads(job.built.threads)
    if request["position"] is None:
        return _compare_calls(job)
    return _save_call(job, int(request["position"]), tuple(request["nodes"]))


if __name__ == "__main__":
    call.serve_request(_answer_request)
