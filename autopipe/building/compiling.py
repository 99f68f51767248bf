"""Compiles the model with the schedules that were chosen, and finds the one it fails on, if any.

The whole is compiled in a child process. Where that crashes, hangs or takes too much memory, the
schedule of each task is compiled alone, which no machine of the target is needed for.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import tvm

from autopipe.artifacts.model_nodes import KernelFunction
from autopipe.building.choice import Choices
from autopipe.compiler import module_io
from autopipe.compiler.library import build
from autopipe.compiler.library.kernel_compiler import NotCompiled
from autopipe.compiler.pass_observer import add_measured_passes, measured_passes
from autopipe.compiler.tasks import labelled
from autopipe.compiler.walls.foreign_code import ForeignCode
from autopipe.environment.toolchain import Linker
from autopipe.errors import AutopipeError, StageError
from autopipe.processes import contained
from autopipe.processes.contained import Child, Failed
from autopipe.processes.failure import of_ours, sorted_out
from autopipe.safety.failures import Failures, KnownFailure
from autopipe.safety.job import Piece, do
from autopipe.safety.verdict import Finding, Verdict

_EACH: Final = 10.0
"""Seconds that a task adds to what the whole may take."""


@dataclass(frozen=True, slots=True)
class CompiledModule:
    """A module whose library is written."""

    packing: tvm.IRModule
    """What is left to do on its weights."""
    functions: tuple[KernelFunction, ...]
    """Its kernel calls, and the nodes of the model that they are made of."""


def compile_model(
    lowered: Mapping[str, tvm.IRModule],
    choices: Choices,
    failures: Failures,
    paths: Mapping[str, Path],
    linker: Linker | None = None,
) -> dict[str, CompiledModule]:
    """Write the library of each module, and return what is known of it, by label.

    A task whose schedule fails takes the next of its chain. Raises StageError if nothing is left
    of one, if the whole fails twice although no task does alone, and for what can not be built or
    linked; SetupError without the compiler for a GPU.
    """
    innocent = False
    while _hopeless(choices, failures):
        choices.settle()
    while True:
        try:
            return _whole(lowered, choices, failures, paths, linker)
        except Failed as error:
            if not _culprits(choices, failures):
                if innocent:
                    why = "compiling the model failed twice, though each task alone compiles"
                    raise StageError(f"{why}: {error}\n{error.log}") from error
                innocent = True
            choices.settle()


def _whole(
    lowered: Mapping[str, tvm.IRModule],
    choices: Choices,
    failures: Failures,
    paths: Mapping[str, Path],
    linker: Linker | None,
) -> dict[str, CompiledModule]:
    scheduled = {
        name: choice.module
        for asked, choice in zip(choices.asked, choices.chosen, strict=True)
        for name in asked.task.functions
    }

    def compiled(_: object) -> Mapping[str, Any]:
        """Tell a refusal, which is no failure, from a result."""
        done = {}
        try:
            for label, module in lowered.items():
                bodies = _of(label, module, scheduled)
                built = build.build(
                    module, bodies, failures.conditions.target, packs_at_load=len(lowered) == 1
                )
                build.export(built, paths[label], linker)
                functions = [function.document() for function in built.functions]
                done[label] = tvm.ir.save_json(built.packing), functions
        except (ForeignCode, NotCompiled):  # some task's kernel is to blame
            raise
        except AutopipeError as error:
            return {"failed": asdict(of_ours(error))}
        return {"ok": {"modules": done, "passes": measured_passes()}}

    seconds = contained.SECONDS + _EACH * len(choices.asked)
    with Child(lambda: compiled, seconds=seconds) as child:
        done, refused = sorted_out(child.ask())
    if refused is not None:
        raise refused.error()
    add_measured_passes(done["passes"])
    return {
        label: CompiledModule(
            module_io.from_json(text), tuple(map(KernelFunction.model_validate, functions))
        )
        for label, (text, functions) in done["modules"].items()
    }


def _of(
    label: str, module: tvm.IRModule, scheduled: Mapping[str, tvm.IRModule]
) -> dict[str, tvm.IRModule]:
    """Return the scheduled bodies of the PrimFuncs of one module, by their names in it."""
    names = (name for name, _ in module_io.prim_funcs(module))
    return {name: scheduled[labelled(name, label)] for name in names}


def _pieces(choices: Choices) -> list[Piece]:
    return [
        Piece(
            "compiling", asked.task.name, asked.workload, choice.engine, choice.implementation,
            choice.schedule or "", choice.module,
        )
        for asked, choice in zip(choices.asked, choices.chosen, strict=True)
    ]  # fmt: skip


def _hopeless(choices: Choices, failures: Failures) -> bool:
    """Have each task whose schedule failed in earlier runs take another one; tell if any does."""
    found = False
    for place, piece in enumerate(_pieces(choices) if failures.hopeless else ()):
        try:
            failures.suspect(piece)
        except KnownFailure as known:
            choices.drop(place, Verdict(Finding.FAILED, str(known), known.folder))
            found = True
    return found


def _culprits(choices: Choices, failures: Failures) -> bool:
    """Have each task whose schedule fails take another one; tell whether there is any."""
    found = False
    pieces = _pieces(choices)
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
