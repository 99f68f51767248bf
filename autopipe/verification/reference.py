"""Computes the expected outputs, in a process of its own.

For an ONNX model by a runtime that is not TVM. Any model has `plain` besides: TVM's own loops
without schedules, which tell a wrong schedule, layout, fusion or packing, but not a wrong operator.
"""

import os
import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

import numpy as np

from autopipe.errors import ConfigError, ModelError, SetupError, StageError
from autopipe.processes import call
from autopipe.store import arrays

ENGINES = ("onnxruntime", "onnx")
"""Those that run ONNX models, in the order of `auto`."""

PLAIN = "plain"

MODEL = "reference.onnx"
"""What `ENGINES` run, in the artifact of *import*; a model that is not ONNX has none."""

ORIGINAL = "original.onnx"
"""The model as its author wrote it, beside it: where onnxruntime takes that, it is what counts."""

STORED = "reference.weights"
"""Its weights, beside it."""

MODULE, WEIGHTS = "module.json", "weights.safetensors"
"""What `PLAIN` runs, in the artifact of *import*."""

SECONDS: Final = 600.0
"""For one case. What takes longer is taken for a loop that never ends."""

_LATE: Final = "a case took longer than its time"

EXACT_BYTES: Final = ("session.x64quantprecision", "1")
"""Where a processor lacks VNNI, onnxruntime adds products of bytes in 16 bits, which overflow,
unless it is told not to. As a rival it may be so fast; as a reference it has to be right."""

_PACKAGES = {"onnxruntime": "onnxruntime", "onnx": "onnx", PLAIN: "apache-tvm"}
_PROGRAMS = {PLAIN: "autopipe.compiler.library.plain"}


@dataclass(frozen=True, slots=True)
class Expected:
    """The outputs that a reference computed."""

    engine: str
    """The engine that computed them."""
    version: str
    """Its version."""
    outputs: tuple[str, ...]
    """Names of the outputs, in order."""
    files: tuple[Path, ...]
    """The outputs of each case, as safetensors."""
    refusals: tuple[str, ...]
    """Why the engines before this one could not."""
    refused: Mapping[Path, str] = field(default_factory=dict)
    """Why it did not take some case that it may refuse, by file; the file is missing then."""


_Run = Callable[[dict[str, np.ndarray]], Sequence[object]]


def choose(wanted: str, model: Path) -> tuple[str, ...]:
    """Return the engines to try, in order, for `onnxruntime`, `onnx`, `plain` or `auto`.

    `model` is the artifact of *import*. Raises SetupError where none is installed, since a build
    is never verified against nothing, and ConfigError for one that can not run the model.
    """
    is_onnx = (model / MODEL).exists()
    if wanted in ENGINES and not is_onnx:
        raise ConfigError(
            f"verify.reference: {wanted} runs ONNX models, and this is none; did you mean 'plain'?"
        )
    candidates = (wanted,) if wanted != "auto" else ENGINES if is_onnx else (PLAIN,)
    installed = tuple(engine for engine in candidates if engine == PLAIN or find_spec(engine))
    if not installed:
        raise SetupError(
            f"the reference {wanted!r} is not installed: pip install {candidates[0]}, "
            "or set `verify: null` to publish unchecked builds"
        )
    return installed


def expect(
    engines: Sequence[str],
    model: Path,
    cases: Sequence[Path],
    optional: Collection[Path] = (),
) -> Expected:
    """Compute the outputs for each case, a safetensors file, into a file beside it.

    `model` is the artifact of *import*. The first engine that takes the model does it:
    onnxruntime has kernels for fewer dtypes than ONNX has. It may refuse the `optional` cases, such
    as a division by zero. Raises StageError where all of them refuse the model or another case, and
    ModelError where a case takes longer than `SECONDS`.
    """
    files = tuple(case.with_suffix(".expected") for case in cases)
    pairs = [(str(case), str(file)) for case, file in zip(cases, files, strict=True)]
    refusals: list[str] = []
    for engine in engines:
        request = {
            "engine": engine, "model": str(model), "cases": pairs,
            "optional": [str(case) for case in optional], "seconds": SECONDS,
        }  # fmt: skip
        try:
            answer = call.call(_PROGRAMS.get(engine, __name__), request)
        except StageError as error:
            if _LATE in str(error):
                raise ModelError(
                    f"the model takes longer than {SECONDS:g} s for one case in {engine}: does a "
                    "loop of it never end for drawn inputs? verify.inputs takes real ones"
                ) from None
            refusals.append(f"the reference {engine} failed: {error}")
        else:
            outputs = tuple(answer["outputs"])
            refused = {
                Path(case).with_suffix(".expected"): str(why)
                for case, why in answer.get("refused", {}).items()
            }
            made = version(_PACKAGES[engine])
            return Expected(engine, made, outputs, files, tuple(refusals), refused)
    raise StageError("; ".join(refusals))


def _answer(request: call.Answer) -> call.Answer:
    from safetensors.numpy import load_file

    start = _onnxruntime if request["engine"] == "onnxruntime" else _onnx
    refused: dict[str, str] = {}
    try:
        names, run = start(str(Path(request["model"], MODEL)))
        for case, file in request["cases"]:
            try:
                with _bounded(request.get("seconds", SECONDS)):
                    results = run(load_file(case))
            except Exception as error:
                if case not in request["optional"]:
                    raise
                refused[case] = _first_line(error)
                continue
            outputs = zip(names, results, strict=True)
            arrays.save({name: _array(name, value) for name, value in outputs}, Path(file))
    except Exception as error:  # the runtimes' errors have no base in common
        raise StageError(_first_line(error)) from error
    return {"outputs": names, "refused": refused}


@contextmanager
def _bounded(seconds: float) -> Iterator[None]:
    """End this process if what is inside takes longer: a runtime can not be interrupted."""

    def give_up() -> None:
        os.write(2, f"{_LATE}\n".encode())  # the last line is what the parent is told
        os._exit(1)

    timer = threading.Timer(seconds, give_up)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


def _onnxruntime(model: str) -> tuple[list[str], _Run]:
    import onnxruntime

    onnxruntime.set_default_logger_severity(4)
    options = onnxruntime.SessionOptions()
    options.add_session_config_entry(*EXACT_BYTES)
    session = _open(onnxruntime, Path(model), options)
    names = [output.name for output in session.get_outputs()]
    return names, lambda inputs: session.run(names, inputs)


def _open(onnxruntime: Any, model: Path, options: object) -> Any:  # noqa: ANN401 - its module
    """Return a session of the model as its author wrote it, or of `model` where that is refused."""
    providers = ["CPUExecutionProvider"]
    original = model.with_name(ORIGINAL)
    if original.exists():
        try:
            return onnxruntime.InferenceSession(str(original), options, providers=providers)
        except Exception:  # noqa: BLE001, S110 - what it says of `model` is told
            pass
    return onnxruntime.InferenceSession(str(model), options, providers=providers)


def _onnx(model: str) -> tuple[list[str], _Run]:
    from onnx.reference import ReferenceEvaluator

    evaluator = ReferenceEvaluator(model)
    return evaluator.output_names, lambda inputs: evaluator.run(None, inputs)


def _array(name: str, value: object) -> np.ndarray:
    if not isinstance(value, np.ndarray | np.generic):
        raise StageError(f"output {name!r} is a {type(value).__name__}, not a tensor")
    return np.asarray(value, order="C")


if __name__ == "__main__":
    call.serve(_answer)
