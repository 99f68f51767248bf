"""Compile the model with the selected schedules, and replace those that are wrong or fail.

The model is compiled in child processes, its kernels in parts, while another child packs the
weights; then each schedule is checked by its kernel in the library. Where compiling crashes, hangs
or takes too much memory, the schedule of each task is compiled alone, which needs no machine of the
target.
"""

import os
import time
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import tvm

from autopipe.artifacts.model_nodes import KernelFunction
from autopipe.building.choice import Choices
from autopipe.building.compile_progress import CompileProgress
from autopipe.building.part_workers import SECONDS_OF_EACH, PartWorkers
from autopipe.building.refusals import unwrap_answer, wrap_refusals
from autopipe.compiler import module_io
from autopipe.compiler.library import build
from autopipe.compiler.pass_observer import add_measured_passes, list_pass_times, write_below
from autopipe.compiler.tasks import append_label, parse_label
from autopipe.environment.toolchain import Linker
from autopipe.errors import StageError
from autopipe.host.memory import keep_freed_memory
from autopipe.measure.library_kernel import LibraryKernel
from autopipe.pipeline.counted import INTERVAL
from autopipe.processes import contained
from autopipe.processes.contained import Child, Failed
from autopipe.processes.link import wait_for_readable
from autopipe.safety.failures import Failures, KnownFailure
from autopipe.safety.job import Piece, do
from autopipe.safety.verdict import Finding, Verdict

Packer = Callable[[Mapping[str, tvm.IRModule]], Any]
"""Writes the packed weights of all modules, from their packing by label; returns a JSON value."""


@dataclass(frozen=True, slots=True)
class BuildSource:
    """The modules to compile, and the paths of their libraries."""

    lowered: Mapping[str, tvm.IRModule]
    """The modules, by label."""
    paths: Mapping[str, Path]
    """The paths of their libraries, by label."""
    pack: Packer
    folder: Path
    """The folder for the object files of their kernels."""
    linker: Linker | None = None


@dataclass(frozen=True, slots=True)
class CompiledModel:
    """A model whose libraries and weights are written."""

    functions: Mapping[str, tuple[KernelFunction, ...]]
    """The kernel calls of each module by its label, with the nodes of the model they compute."""
    packed: Any
    """The value that `BuildSource.pack` returned."""


def compile_model(source: BuildSource, choices: Choices, failures: Failures) -> CompiledModel:
    """Write the library of each module, with schedules that compile and are right.

    A failing schedule is replaced by the next candidate of its task. Raises StageError if a task
    has none left, if the model fails to compile twice although each task compiles alone, and for
    errors of packing, building or linking; SetupError without the compiler for a GPU.
    """
    innocent = False
    while _drop_known_failures(choices, failures):
        pass
    while True:
        try:
            model = _whole(source, choices, failures)
        except Failed as error:
            if not _drop_failing_schedules(choices, failures) and choices.check():
                if innocent:
                    why = "compiling the model failed twice, though each task alone compiles"
                    raise StageError(f"{why}: {error}\n{error.log}") from error
                innocent = True
        else:
            if choices.check(_locate_kernels(source, choices, failures)):
                return model


def _whole(source: BuildSource, choices: Choices, failures: Failures) -> CompiledModel:
    kernel_modules = {
        name: choice.module
        for asked, choice in zip(choices.asked, choices.chosen, strict=True)
        for name in asked.task.functions
    }
    target = failures.conditions.target

    def pack(packing: Mapping[str, str]) -> Any:  # noqa: ANN401 - JSON
        keep_freed_memory()
        write_below("weights")
        return source.pack({label: module_io.parse_json(text) for label, text in packing.items()})

    seconds = contained.SECONDS + SECONDS_OF_EACH * len(choices.asked)
    cores = len(os.sched_getaffinity(0))  # of this machine, whichever one it compiles for
    compilations = {
        label: _Compilation(source, label, kernel_modules, target) for label in source.lowered
    }
    compilers = {
        label: Child(partial(wrap_refusals, work.answer), seconds=seconds)
        for label, work in compilations.items()
    }
    packer = Child(lambda: wrap_refusals(pack), seconds=seconds, bounded=False)
    with ExitStack() as children:
        for child in (*compilers.values(), packer):
            children.enter_context(child)
        packing = _ask_all(compilers, "link", cores)
        packer.tell(packing)
        modules = source.lowered.items()
        kernels = {label: len(list(module_io.list_prim_funcs(module))) for label, module in modules}
        progress = CompileProgress(choices.watch, choices.checks, kernels)
        answers = _ask_all(compilers, "compile", cores, progress.count)
        weight_names = _await_packed_weights(packer, packing)
    functions = {}
    for label, answer in answers.items():
        add_measured_passes(answer["passes"])
        functions[label] = tuple(map(KernelFunction.model_validate, answer["functions"]))
    return CompiledModel(functions, weight_names)


def _ask_all(
    children: Mapping[str, Child],
    step: str,
    cores: int,
    count: Callable[[Mapping[str, Any]], None] = lambda _: None,
) -> dict[str, Any]:
    """Send a request to each child, and again while it answers with the share that is done.

    They share the cores: at most one for each runs at a time, and gets its step and the number of
    its own cores. `count` takes the present answers. Returns the last ones.
    """
    waiting, begun = deque(children), dict[str, float]()
    answers: dict[str, Any] = {}
    while waiting or begun:
        while waiting and len(begun) < cores:
            label = waiting.popleft()
            children[label].tell([step, max(1, cores // (len(waiting) + len(begun) + 1))])
            begun[label] = time.monotonic()
        ready = wait_for_readable([children[label].link for label in begun], INTERVAL)
        for label, start in list(begun.items()):
            child = children[label]
            is_late = time.monotonic() > start + child.seconds
            if is_late or child.link in ready:
                del begun[label]
                answers[label] = unwrap_answer(child.answer(late=is_late))
                if isinstance(answers[label], float):
                    waiting.appendleft(label)
        count(answers)
    return {label: answers[label] for label in children}


def _await_packed_weights(packer: Child, packing: Mapping[str, str]) -> Any:  # noqa: ANN401 - JSON
    """Return the answer of the child that packs weights, which is retried once.

    Raises StageError if it fails again.
    """
    try:
        answer = packer.answer()
    except Failed:
        try:
            answer = packer.ask(packing)
        except Failed as error:
            raise StageError(f"packing the weights failed twice: {error}\n{error.log}") from error
    return unwrap_answer(answer)


@dataclass(slots=True)
class _Compilation:
    """The two steps of compiling one module of a model, in a child."""

    source: BuildSource
    label: str
    scheduled: Mapping[str, tvm.IRModule]
    """The schedule of each function, by its labelled name."""
    target: tvm.target.Target
    graph: build.LinkedGraph = field(init=False)
    """Set by step "link"."""
    split: build.SplitGraph = field(init=False)
    """Set when its parts begin to be compiled."""
    parts: PartWorkers | None = None

    def answer(self, request: tuple[str, int]) -> Any:  # noqa: ANN401 - JSON
        """Run step "link", which returns the packing of weights, or a part of step "compile".

        That returns the share of the kernels that are compiled, until all are and the library is
        linked. The request is a step, and the number of cores to use.
        """
        step, cores = request
        return self._link() if step == "link" else self._compile_graph(cores)

    def _link(self) -> str:
        modules = self.source.lowered
        module = modules[self.label]
        write_below(self.source.paths[self.label].stem if self.label else "")
        bodies = _select_bodies(self.label, module, self.scheduled)
        self.graph = build.link_graph(module, bodies, self.target, packs_at_load=len(modules) == 1)
        packing: str = tvm.ir.save_json(self.graph.packing)
        return packing

    def _compile_graph(self, cores: int) -> float | dict[str, Any]:
        path = self.source.paths[self.label]
        folder = self.source.folder / path.stem
        if self.parts is None:
            self.split = build.split_kernels(build.lower_graph(self.graph))
            folder.mkdir(parents=True, exist_ok=True)
            compile_part = partial(self.split.compile_part, folder=folder)
            self.parts = PartWorkers(self.split.parts, compile_part)
        if (share := self.parts.await_part(cores)) is not None:
            return share
        executable = build.compile_graph(self.split)
        build.export(executable, path, self.source.linker, self.split.list_objects(folder))
        functions = [function.document() for function in executable.functions]
        return {"functions": functions, "passes": list_pass_times()}


def _locate_kernels(
    source: BuildSource, choices: Choices, failures: Failures
) -> list[LibraryKernel | None] | None:
    """Locate the kernel of each task in the libraries; None if the host cannot run them."""
    if not failures.conditions.hardware.backend.runs_on_host:
        return None
    return [_locate_kernel(source, asked.task.functions[0]) for asked in choices.asked]


def _locate_kernel(source: BuildSource, labelled_name: str) -> LibraryKernel | None:
    """Locate a function; None for one at specialized sizes that no library has."""
    name, label = labelled_name.partition("@")[0], parse_label(labelled_name)
    if label not in source.paths or append_label(name, label) != labelled_name:
        return None
    return LibraryKernel(str(source.paths[label]), name)


def _select_bodies(
    label: str, module: tvm.IRModule, kernel_modules: Mapping[str, tvm.IRModule]
) -> dict[str, tvm.IRModule]:
    """Select the scheduled bodies of the PrimFuncs of one module, by their names in it."""
    names = (name for name, _ in module_io.list_prim_funcs(module))
    return {name: kernel_modules[append_label(name, label)] for name in names}


def _list_pieces(choices: Choices) -> list[Piece]:
    return [
        Piece(
            "compiling", asked.task.name, asked.workload, choice.engine, choice.implementation,
            choice.schedule or "", choice.module,
        )
        for asked, choice in zip(choices.asked, choices.chosen, strict=True)
    ]  # fmt: skip


def _drop_known_failures(choices: Choices, failures: Failures) -> bool:
    """Replace schedules that failed in earlier runs; tell whether there were any."""
    has_dropped = False
    for place, piece in enumerate(_list_pieces(choices) if failures.hopeless else ()):
        try:
            failures.suspect(piece)
        except KnownFailure as known:
            choices.drop(place, Verdict(Finding.FAILED, str(known), known.folder))
            has_dropped = True
    return has_dropped


def _drop_failing_schedules(choices: Choices, failures: Failures) -> bool:
    """Compile each schedule alone and replace those that fail; tell whether there were any."""
    has_dropped = False
    pieces = _list_pieces(choices)
    with Child(lambda: lambda place: do(pieces[place], failures.conditions)) as child:
        for place, piece in enumerate(pieces):
            try:
                (child.ask if failures.suspect(piece) else child.twice)(place)
                failures.passed(piece)
            except Failed as error:
                folder = (
                    error.folder if isinstance(error, KnownFailure) else failures.add(piece, error)
                )
                choices.drop(place, Verdict(Finding.FAILED, str(error), folder))
                has_dropped = True
    return has_dropped
