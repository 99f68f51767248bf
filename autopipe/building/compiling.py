"""Compiles the model with the schedules that were chosen, and finds those that are wrong or fail.

The whole is compiled in a child process, while another one packs the weights; then each schedule is
checked by its kernel in the library. Where compiling crashes, hangs or takes too much memory, the
schedule of each task is compiled alone, which no machine of the target is needed for.
"""

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, Final

import tvm

from autopipe.artifacts.model_nodes import KernelFunction
from autopipe.building.choice import Choices
from autopipe.building.compile_progress import CompileProgress
from autopipe.compiler import module_io
from autopipe.compiler.library import build
from autopipe.compiler.library.kernel_compiler import NotCompiled
from autopipe.compiler.pass_observer import add_measured_passes, list_pass_times, write_below
from autopipe.compiler.tasks import append_label, parse_label
from autopipe.compiler.walls.foreign_code import ForeignCode
from autopipe.environment.toolchain import Linker
from autopipe.errors import AutopipeError, StageError
from autopipe.host.memory import keep_freed_memory
from autopipe.measure.library_kernel import LibraryKernel
from autopipe.processes import contained
from autopipe.processes.contained import Child, Failed
from autopipe.processes.failure import describe_own_error, split_answer
from autopipe.safety.failures import Failures, KnownFailure
from autopipe.safety.job import Piece, do
from autopipe.safety.verdict import Finding, Verdict

_EACH: Final = 10.0
"""Seconds that a task adds to what the whole may take."""

Packer = Callable[[Mapping[str, tvm.IRModule]], Any]
"""Writes the weights of all modules, whose packing it takes by label; returns a value for JSON."""


@dataclass(frozen=True, slots=True)
class BuildSource:
    """What libraries are compiled from, and where they go."""

    lowered: Mapping[str, tvm.IRModule]
    """The modules, by label."""
    paths: Mapping[str, Path]
    """Of their libraries."""
    pack: Packer
    linker: Linker | None = None


@dataclass(frozen=True, slots=True)
class CompiledModel:
    """A model whose libraries and weights are written."""

    functions: Mapping[str, tuple[KernelFunction, ...]]
    """The kernel calls of each module by its label, and the nodes of the model that they are made
    of."""
    packed: Any
    """What `BuildSource.pack` returned."""


def compile_model(source: BuildSource, choices: Choices, failures: Failures) -> CompiledModel:
    """Write the library of each module, with schedules that compile and are not wrong.

    A task whose schedule fails takes the next of its chain. Raises StageError if nothing is left
    of one, if the whole fails twice although no task does alone, and for what can not be packed,
    built or linked; SetupError without the compiler for a GPU.
    """
    innocent = False
    while _drop_known_failures(choices, failures):
        pass
    while True:
        try:
            compiled = _whole(source, choices, failures)
        except Failed as error:
            if not _drop_failing_schedules(choices, failures) and choices.check():
                if innocent:
                    why = "compiling the model failed twice, though each task alone compiles"
                    raise StageError(f"{why}: {error}\n{error.log}") from error
                innocent = True
        else:
            if choices.check(_locate_kernels(source, choices, failures)):
                return compiled


def _whole(source: BuildSource, choices: Choices, failures: Failures) -> CompiledModel:
    scheduled = {
        name: choice.module
        for asked, choice in zip(choices.asked, choices.chosen, strict=True)
        for name in asked.task.functions
    }
    target = failures.conditions.target

    def pack(packing: Mapping[str, str]) -> Any:  # noqa: ANN401 - JSON
        keep_freed_memory()
        write_below("weights")
        return source.pack({label: module_io.parse_json(text) for label, text in packing.items()})

    seconds = contained.SECONDS + _EACH * len(choices.asked)
    compilations = {
        label: _Compilation(source, label, scheduled, target) for label in source.lowered
    }
    compilers = {
        label: Child(partial(_wrap_refusals, work.answer), seconds=seconds)
        for label, work in compilations.items()
    }
    packer = Child(lambda: _wrap_refusals(pack), seconds=seconds, bounded=False)
    with ExitStack() as children:
        for child in (*compilers.values(), packer):
            children.enter_context(child)
        cores = failures.conditions.hardware.cores
        packing = _ask_all(compilers, "link", cores)
        packer.tell(packing)
        modules = source.lowered.items()
        kernels = {label: len(list(module_io.list_prim_funcs(module))) for label, module in modules}
        progress = CompileProgress(choices.watch, choices.checks, kernels)
        compiled = _ask_all(compilers, "compile", cores, progress.wait)
        packed = _await_packed_weights(packer, packing)
    functions = {}
    for label, done in compiled.items():
        add_measured_passes(done["passes"])
        functions[label] = tuple(map(KernelFunction.model_validate, done["functions"]))
    return CompiledModel(functions, packed)


def _ask_all(
    children: Mapping[str, Child],
    step: str,
    most: int,
    wait: Callable[[str, Child], bool] = lambda *_: False,
) -> dict[str, Any]:
    """Return the answer of each child; at most `most` of them work at the same time.

    `wait` is called before each answer, and returns whether it is overdue.
    """
    waiting, answers = iter(children.values()), {}
    for child in islice(waiting, most):
        child.tell(step)
    for label, child in children.items():
        answers[label] = _unwrap_answer(child.answer(late=wait(label, child)))
        for following in islice(waiting, 1):
            following.tell(step)
    return answers


def _await_packed_weights(packer: Child, packing: Mapping[str, str]) -> Any:  # noqa: ANN401 - JSON
    """Return what a child that packs weights answers, which may fail once.

    Raises StageError: no schedule is to blame that the compiler took.
    """
    try:
        answer = packer.answer()
    except Failed:
        try:
            answer = packer.ask(packing)
        except Failed as error:
            raise StageError(f"packing the weights failed twice: {error}\n{error.log}") from error
    return _unwrap_answer(answer)


@dataclass(slots=True)
class _Compilation:
    """The two steps of compiling one module of a model, in a child."""

    source: BuildSource
    label: str
    scheduled: Mapping[str, tvm.IRModule]
    """The schedule of each function, by its labelled name."""
    target: tvm.target.Target
    graph: build.LinkedGraph | None = None

    def answer(self, step: str) -> Any:  # noqa: ANN401 - JSON
        """Link the graph and return what is left to do on weights; or compile what was linked."""
        return self._link() if step == "link" else self._compile_graph()

    def _link(self) -> str:
        lowered = self.source.lowered
        module = lowered[self.label]
        write_below(self.source.paths[self.label].stem if self.label else "")
        bodies = _select_bodies(self.label, module, self.scheduled)
        self.graph = build.link_graph(module, bodies, self.target, packs_at_load=len(lowered) == 1)
        packing: str = tvm.ir.save_json(self.graph.packing)
        return packing

    def _compile_graph(self) -> dict[str, Any]:
        assert self.graph is not None  # noqa: S101 - linked before
        built = build.compile_graph(self.graph)
        build.export(built, self.source.paths[self.label], self.source.linker)
        functions = [function.document() for function in built.functions]
        return {"functions": functions, "passes": list_pass_times()}


def _wrap_refusals(work: Callable[[Any], Any]) -> contained.Handler:
    """Tell a refusal, which is no failure, from a result."""

    def answer(request: Any) -> Mapping[str, Any]:  # noqa: ANN401 - JSON
        try:
            return {"ok": work(request)}
        except (ForeignCode, NotCompiled):  # some task's kernel is to blame
            raise
        except AutopipeError as error:
            return {"failed": asdict(describe_own_error(error))}

    return answer


def _unwrap_answer(answer: object) -> Any:  # noqa: ANN401 - JSON
    """Return what was answered. Raises the error of ours that was raised."""
    done, refused = split_answer(answer)
    if refused is not None:
        raise refused.error()
    return done


def _locate_kernels(
    source: BuildSource, choices: Choices, failures: Failures
) -> list[LibraryKernel | None] | None:
    """Return where the kernel of each task is; None where only the schedule alone can be run."""
    if not failures.conditions.hardware.backend.runs_on_host:
        return None
    return [_locate_kernel(source, asked.task.functions[0]) for asked in choices.asked]


def _locate_kernel(source: BuildSource, labelled_name: str) -> LibraryKernel | None:
    """Return where a function is; None for one at likely sizes, which no library has."""
    name, label = labelled_name.partition("@")[0], parse_label(labelled_name)
    if label not in source.paths or append_label(name, label) != labelled_name:
        return None
    return LibraryKernel(str(source.paths[label]), name)


def _select_bodies(
    label: str, module: tvm.IRModule, scheduled: Mapping[str, tvm.IRModule]
) -> dict[str, tvm.IRModule]:
    """Return the scheduled bodies of the PrimFuncs of one module, by their names in it."""
    names = (name for name, _ in module_io.list_prim_funcs(module))
    return {name: scheduled[append_label(name, label)] for name in names}


def _list_pieces(choices: Choices) -> list[Piece]:
    return [
        Piece(
            "compiling", asked.task.name, asked.workload, choice.engine, choice.implementation,
            choice.schedule or "", choice.module,
        )
        for asked, choice in zip(choices.asked, choices.chosen, strict=True)
    ]  # fmt: skip


def _drop_known_failures(choices: Choices, failures: Failures) -> bool:
    """Have each task whose schedule failed in earlier runs take another one; tell if any does."""
    found = False
    for place, piece in enumerate(_list_pieces(choices) if failures.hopeless else ()):
        try:
            failures.suspect(piece)
        except KnownFailure as known:
            choices.drop(place, Verdict(Finding.FAILED, str(known), known.folder))
            found = True
    return found


def _drop_failing_schedules(choices: Choices, failures: Failures) -> bool:
    """Have each task whose schedule fails take another one; tell whether there is any."""
    found = False
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
                found = True
    return found
