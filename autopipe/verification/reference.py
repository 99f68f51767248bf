"""Compute the expected outputs, in a process of its own.

For an ONNX model by a runtime that is not TVM. Any model has `plain` besides: TVM's unscheduled
loops, which reveal a wrong schedule, layout, fusion or packing, but not a wrong operator.
"""

import os
import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np

from autopipe.compiler.step_counter import count_steps
from autopipe.errors import ConfigError, ModelError, SetupError, StageError, find_first_line
from autopipe.host.onnx_session import open_session
from autopipe.processes import call
from autopipe.store import arrays

if TYPE_CHECKING:
    from onnxruntime import InferenceSession, SessionOptions

RUNTIMES = ("onnxruntime", "unoptimized onnxruntime")
"""The runtime with and without its optimizations, of which some refuse valid models."""

ENGINES = (*RUNTIMES, "onnx")
"""Engines that run ONNX models, in the order of `auto`."""

PLAIN = "plain"

MODEL = "reference.onnx"
"""The file that `ENGINES` run, in the artifact of *import*; a model that is not ONNX has none."""

ORIGINAL = "original.onnx"
"""The unmodified model beside it, which takes precedence where onnxruntime accepts it."""

STORED = "reference.weights"
"""The weights of `MODEL`, beside it."""

MODULE, WEIGHTS = "module.json", "weights.safetensors"
"""The files that `PLAIN` runs, in the artifact of *import*."""

SECONDS: Final = 600.0
"""Time limit of one case. A longer run counts as an infinite loop."""

_LATE: Final = "a case took longer than its time"

EXACT_BYTES: Final = ("session.x64quantprecision", "1")
"""Where a processor lacks VNNI, onnxruntime adds int8 products in 16 bits, which overflow, unless
this option is set. As a competitor it may be so fast; as a reference it has to be right."""

_PACKAGES = {**dict.fromkeys(RUNTIMES, "onnxruntime"), "onnx": "onnx", PLAIN: "apache-tvm"}
_PROGRAMS = {PLAIN: "autopipe.compiler.library.plain_reference"}


@dataclass(frozen=True, slots=True)
class Expected:
    """The expected outputs, and the engines that computed them."""

    engine: str
    """The engine of the first case that was computed."""
    outputs: tuple[str, ...]
    """Names of the outputs, in order."""
    files: tuple[Path, ...]
    """The outputs of each case, as safetensors."""
    refusals: tuple[str, ...]
    """The reasons of engines that failed on some case, or all, and their replacements."""
    failed: frozenset[str] = frozenset()
    """Engines that refuse the model."""
    refused: Mapping[Path, str] = field(default_factory=dict)
    """The reason why all engines refused an optional case, by file; the file is missing then."""
    engines: Mapping[Path, str] = field(default_factory=dict)
    """The engine that computed a file, where it is not `engine`."""

    @property
    def version(self) -> str:
        """Return the version of the engine."""
        return find_version(self.engine)


def find_version(engine: str) -> str:
    """Return the version of the package of an engine."""
    return version(_PACKAGES[engine])


_Run = Callable[[dict[str, np.ndarray]], Sequence[object]]


def choose_engines(engine_name: str, model: Path) -> tuple[str, ...]:
    """Return the engines to try, in order, for `onnxruntime`, `onnx`, `plain` or `auto`.

    `model` is the artifact of *import*. Raises SetupError where none is installed, since a build
    is never verified against nothing, and ConfigError for one that cannot run the model.
    """
    is_onnx = (model / MODEL).exists()
    if engine_name in ENGINES and not is_onnx:
        raise ConfigError(
            f"verify.reference: {engine_name} runs ONNX models, and this is none; "
            "did you mean 'plain'?"
        )
    by_name = RUNTIMES if engine_name == RUNTIMES[0] else (engine_name,)
    candidates = by_name if engine_name != "auto" else ENGINES if is_onnx else (PLAIN,)
    installed_engines = tuple(
        engine for engine in candidates if engine == PLAIN or find_spec(_PACKAGES[engine])
    )
    if not installed_engines:
        raise SetupError(
            f"the reference {engine_name!r} is not installed: pip install {candidates[0]}, "
            "or set `verify: null` to publish unchecked builds"
        )
    return installed_engines


def expect(
    engines: Sequence[str],
    model: Path,
    cases: Sequence[Path],
    optional: Collection[Path] = (),
    doubtful: Collection[Path] = (),
) -> Expected:
    """Compute the outputs for each case, a safetensors file, into a file beside it.

    `model` is the artifact of *import*. The first engine that accepts a case computes it:
    onnxruntime has kernels for fewer dtypes than ONNX, and crashes at a division by zero. An
    engine may refuse `optional` cases; all engines may refuse `doubtful` ones. Raises StageError
    where all of them refuse the model or another case, and ModelError where a case takes longer
    than `SECONDS`.
    """
    files = {case: case.with_suffix(".expected") for case in cases}
    progress = _Answers(list(cases))
    for engine in engines:
        try:
            answer = _ask(engine, model, {case: files[case] for case in progress.waiting})
        except StageError as error:
            progress.failed[engine] = str(error)
            continue
        reasons = {Path(case): str(why) for case, why in answer.get("refused", {}).items()}
        progress.take(engine, tuple(answer["outputs"]), reasons, optional)
        if not progress.waiting:
            break
    if not progress.outputs or not set(progress.waiting) <= set(doubtful):
        raise StageError("; ".join(progress.list_failures()))
    main = next(iter(progress.engine_of.values()), "") or engine
    return Expected(
        engine=main,
        outputs=progress.outputs,
        files=tuple(files.values()),
        refusals=tuple(progress.replacements()),
        failed=frozenset(progress.failed),
        refused={files[case]: why for case, why in progress.refused.items()},
        engines={files[case]: by for case, by in progress.engine_of.items() if by != main},
    )


@dataclass(slots=True)
class _Answers:
    """The answers of the engines so far."""

    waiting: list[Path]
    """Cases that the next engine shall compute."""
    outputs: tuple[str, ...] = ()
    engine_of: dict[Path, str] = field(default_factory=dict)
    refused: dict[Path, str] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)
    """Engines that refuse the model, with the reason."""
    partly: dict[str, str] = field(default_factory=dict)
    """Engines that refuse a case that is not optional, with the reason."""

    def take(
        self,
        engine: str,
        outputs: tuple[str, ...],
        reasons: Mapping[Path, str],
        optional: Collection[Path],
    ) -> None:
        """Record the cases that an engine computed, and those that it refused."""
        self.outputs = outputs
        self.engine_of |= {case: engine for case in self.waiting if case not in reasons}
        self.refused |= reasons
        self.waiting = [case for case in reasons if case not in optional]
        for case in self.engine_of:
            self.refused.pop(case, None)
        if self.waiting:
            self.partly[engine] = reasons[self.waiting[0]]

    def list_failures(self) -> Iterator[str]:
        """Yield the failures of engines in their order, each distinct reason once."""
        reasons: set[str] = set()
        for engine, why in (self.failed | self.partly).items():
            if why not in reasons:
                where = " on a case" if engine in self.partly else ""
                yield f"the reference {engine} failed{where}: {why}"
            reasons.add(why)

    def replacements(self) -> Iterator[str]:
        """Yield the failures of engines with their replacements."""
        failed_engines = self.failed | self.partly
        stand_ins = [
            by for by in dict.fromkeys(self.engine_of.values()) if by not in failed_engines
        ]
        for text in self.list_failures():
            yield f"{text}; {' and '.join(stand_ins) or 'none'} took its place"


def _ask(engine: str, model: Path, files: Mapping[Path, Path]) -> call.Answer:
    """Run an engine on cases in a process of its own. Raises as `expect`."""
    request = {
        "engine": engine, "model": str(model), "seconds": SECONDS,
        "cases": [(str(case), str(file)) for case, file in files.items()],
    }  # fmt: skip
    report = count_steps("reference outputs computed", len(files))

    def count_files() -> None:
        report(sum(file.exists() for file in files.values()))

    try:
        return call.run_module(_PROGRAMS.get(engine, __name__), request, on_wait=count_files)
    except StageError as error:
        if _LATE not in str(error):
            raise
        raise ModelError(
            f"the model takes longer than {SECONDS:g} s for one case in {engine}: does a "
            "loop of it never end for drawn inputs? verify.inputs takes real ones"
        ) from None


def _answer_request(request: call.Answer) -> call.Answer:
    from safetensors.numpy import load_file

    refusals: dict[str, str] = {}
    try:
        names, run = _start_engine(request["engine"], str(Path(request["model"], MODEL)))
        for case, file in request["cases"]:
            try:
                with _exit_after(request.get("seconds", SECONDS)):
                    results = run(load_file(case))
            except Exception as error:  # noqa: BLE001 - the runtimes' errors have no base in common
                refusals[case] = find_first_line(error)
                continue
            outputs = zip(names, results, strict=True)
            arrays.save({name: _check_array(name, value) for name, value in outputs}, Path(file))
    except Exception as error:
        raise StageError(find_first_line(error)) from error
    return {"outputs": names, "refused": refusals}


@contextmanager
def _exit_after(seconds: float) -> Iterator[None]:
    """End this process if the block takes longer: a runtime cannot be interrupted."""

    def give_up() -> None:
        os.write(2, f"{_LATE}\n".encode())  # the parent reports the last line
        os._exit(1)

    timer = threading.Timer(seconds, give_up)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _start_engine(engine: str, model: str) -> tuple[list[str], _Run]:
    if engine not in RUNTIMES:
        return _start_onnx_evaluator(model)
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.add_session_config_entry(*EXACT_BYTES)
    if engine == RUNTIMES[1]:
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = _open_original(Path(model), options)
    names = [output.name for output in session.get_outputs()]
    return names, lambda inputs: session.run(names, inputs)


def _open_original(model: Path, options: "SessionOptions") -> "InferenceSession":
    """Open a session of the unmodified model, or of `model` where onnxruntime refuses that."""
    original = model.with_name(ORIGINAL)
    if original.exists():
        with suppress(StageError):  # the error for `model` is reported
            return open_session(original, options)
    return open_session(model, options)


def _start_onnx_evaluator(model: str) -> tuple[list[str], _Run]:
    from onnx.reference import ReferenceEvaluator

    evaluator = ReferenceEvaluator(model)
    return evaluator.output_names, lambda inputs: list(evaluator.run(None, inputs))


def _check_array(name: str, value: object) -> np.ndarray:
    if not isinstance(value, np.ndarray | np.generic):
        raise StageError(f"output {name!r} is a {type(value).__name__}, not a tensor")
    return np.asarray(value, order="C")


if __name__ == "__main__":
    call.serve_request(_answer_request)
