"""A folder with one kernel call: inputs, outputs, the library, and a script that repeats it."""

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Final

import numpy as np

from autopipe.artifacts.document import ArtifactDocument, Part
from autopipe.artifacts.model_nodes import format_nodes
from autopipe.bisection.differences import measure_difference
from autopipe.compiler.library.kernel_threads import use_threads
from autopipe.compiler.library.runtime import allocate_aligned, as_tensor, load_kernel
from autopipe.errors import StoreError, convert_os_errors
from autopipe.host.stopwatch import time_calls

INPUTS, EXPECTED, ACTUAL = "inputs.npz", "expected.npz", "actual.npz"
LOOPS: Final = "kernel.txt"
_BFLOAT16: Final = "bfloat16"
_SECONDS: Final = 1.0
"""Duration of the timing of a kernel."""

_SCRIPT: Final = '''"""Call a kernel on saved inputs; print the error of its outputs or its time."""

import sys
from pathlib import Path

from autopipe.bisection.call_folder import repeat_call

sys.exit(repeat_call(Path(__file__).parent))
'''


class Argument(Part, frozen=True):
    """An argument of a kernel: a tensor, or a size."""

    shape: tuple[int, ...] = ()
    dtype: str | None = None
    """Null for a size. NumPy has no bfloat16: files hold it as uint16."""
    size: int | None = None


class SavedCall(ArtifactDocument, frozen=True):
    """`call.json`: how the kernel is called."""

    FILE: ClassVar[str] = "call.json"

    kernel: str
    library: str
    nodes: tuple[str, ...]
    threads: int
    arguments: tuple[Argument, ...]
    outputs: int
    """How many of the last tensors it writes."""
    timed: bool
    """Whether `reproduce.py` measures its time."""


def describe_arguments(arguments: Sequence[Any]) -> tuple[Argument, ...]:
    """Describe the arguments of a kernel call: shape and dtype of tensors, value of sizes."""
    return tuple(
        Argument(size=int(one)) if isinstance(one, int)
        else Argument(shape=tuple(map(int, one.shape)), dtype=str(one.dtype))
        for one in arguments
    )  # fmt: skip


def save_call(folder: Path, call: SavedCall, build: Path, loops: str) -> None:
    """Write all files of the folder except the arrays. Raises StoreError."""
    with convert_os_errors(StoreError, folder):
        for name in (INPUTS, EXPECTED, ACTUAL):
            (folder / name).unlink(missing_ok=True)
        for library in build.glob("*.so*"):
            shutil.copyfile(library, folder / library.name)
        call.write(folder)
        (folder / LOOPS).write_text(loops + "\n", encoding="utf-8")
        (folder / "reproduce.py").write_text(_SCRIPT, encoding="utf-8")


def save_arrays(path: Path, arrays: Mapping[str, np.ndarray]) -> None:
    """Write arrays as `.npz`. Raises StoreError."""
    plain = {
        name: array.view(np.uint16) if array.dtype.name == _BFLOAT16 else array
        for name, array in arrays.items()
    }
    with convert_os_errors(StoreError, path):
        np.savez(path, allow_pickle=False, **plain)


def repeat_call(folder: Path) -> int:
    """Call the kernel of a folder and print the error of its outputs or its time.

    Returns 1 where outputs differ from the expected ones by more than is allowed, else 0.
    """
    call = SavedCall.read(folder)
    kernel = load_kernel(folder / call.library, call.kernel)
    use_threads(call.threads)
    stored_inputs = _load_arrays(folder / INPUTS)
    arrays, call_arguments = [], list[object]()
    for at, argument in enumerate(call.arguments):
        if argument.dtype is None:
            call_arguments.append(argument.size)
            continue
        kind = np.uint16 if argument.dtype == _BFLOAT16 else np.dtype(argument.dtype)
        array = allocate_aligned(argument.shape, kind)
        array[...] = stored_inputs.get(str(at), 0)
        arrays.append(array)
        call_arguments.append(as_tensor(array, bfloat16=argument.dtype == _BFLOAT16))
    kernel(*call_arguments)
    outputs = [array.copy() for array in arrays[-call.outputs :]]
    print(f"{call.kernel}: {format_nodes(call.nodes)}")  # noqa: T201 - what it is for
    if call.timed:
        seconds = min(time_calls(lambda: kernel(*call_arguments), 1, _SECONDS))
        print(f"{seconds * 1e6:.1f} us a call on {call.threads} threads")  # noqa: T201
    if not (folder / EXPECTED).exists():
        return 0
    stored_outputs = _load_arrays(folder / EXPECTED)
    expected_arrays = [_as_floats(stored_outputs[str(at)], call, at) for at in range(call.outputs)]
    actual_arrays = [_as_floats(array, call, at) for at, array in enumerate(outputs)]
    difference = measure_difference(expected_arrays, actual_arrays)
    print(describe_errors(difference.max_abs, difference.max_rel))  # noqa: T201
    return 0 if difference.agrees else 1


def describe_errors(largest: float | None, relative: float | None) -> str:
    """Format the largest absolute and relative error of a kernel."""
    if largest is None or relative is None:
        return "its outputs are not finite, or not those that are expected"
    return f"largest error {largest:.6g}, {relative:.3g} of the largest expected value"


def _as_floats(array: np.ndarray, call: SavedCall, at: int) -> np.ndarray:
    """Convert an output to float32 if it is bfloat16, which is stored as uint16."""
    tensors = [one for one in call.arguments if one.dtype is not None]
    if tensors[len(tensors) - call.outputs + at].dtype != _BFLOAT16:
        return array
    return (array.astype(np.uint32) << 16).view(np.float32)


def _load_arrays(path: Path) -> dict[str, np.ndarray]:
    with np.load(path, allow_pickle=False) as file:
        return dict(file)
