"""Run a compiled library: numpy arrays in and out, by name.

Only TVM's runtime library (3 MB) is loaded, through tvm-ffi. That takes 0.1 seconds; `import tvm`
with the compiler would take one or two.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from autopipe.artifacts.signature import LIBRARY, PREPARE, Signature
from autopipe.backends import DEVICES
from autopipe.compiler.library.arena import PAGE, Arena, copy_array
from autopipe.compiler.library.kernel_threads import KernelThreads, shorten_spin
from autopipe.compiler.library.loaded_model import LoadedModel, allocate_aligned, find_last_line
from autopipe.compiler.library.model_instances import ModelInstances
from autopipe.compiler.library.open_model import OpenModel
from autopipe.compiler.patches import omit_torch
from autopipe.errors import SetupError, StageError
from autopipe.libraries import limit_library_threads
from autopipe.runtime.weights import ALIGNMENT, map_bytes, read_header, view_weight

if TYPE_CHECKING:
    from tvm_ffi import Function, Module

__all__ = [
    "LoadedModel",
    "Model",
    "allocate_aligned",
    "as_tensor",
    "load_artifact",
    "load_kernel",
    "load_model",
    "load_with",
    "map_weights",
]  # fmt: skip

WEIGHTS: Final = "weights.safetensors"
"""The file of weights beside the libraries."""

_CPU, _POOLED = 1, 2


Model = LoadedModel | OpenModel | ModelInstances
"""A loaded model: called with numpy arrays by name."""


def load_model(
    folder: Path,
    signature: Signature,
    weights: np.ndarray | None = None,
    *,
    threads: int | None = None,
    instances: int = 1,
) -> Model:
    """Load the libraries in a folder.

    `weights` are the bytes of a safetensors file, by default that of the folder, mapped; weights
    that are aligned in it are used where they are. `instances` share libraries and weights, and run
    at the same time, each on `threads` threads; None are those of the signature. Loading runs code
    of the libraries: check their digests first. Raises StageError if this TVM cannot run them.
    """

    def tensors(names: Collection[str]) -> dict[str, object]:
        data = map_weights(folder / WEIGHTS) if weights is None else weights
        return _read_weights(data, names, frozenset(signature.halves))

    adjusted_signature = signature.model_copy(update={"threads": threads or signature.threads})
    return load_with(folder, adjusted_signature, tensors, instances=instances)


def map_weights(path: Path) -> np.ndarray:
    """Map a file of weights. Raises StageError."""
    try:
        with path.open("rb") as file:
            return map_bytes(file, 0, path.stat().st_size)
    except OSError as error:
        raise StageError(f"{path.name} cannot be read: {error}") from error


def load_with(
    folder: Path,
    signature: Signature,
    of: Callable[[Collection[str]], Mapping[str, object]],
    steps: Sequence[int] = (),
    *,
    instances: int = 1,
) -> Model:
    """Load the libraries in a folder; `of` returns weights by name. Raises what `load_model` does.

    `steps` are the multiples of each dynamic size, for a library that is specialized for one size.
    """
    shorten_spin()
    _load_runtime()
    devices = [_CPU, 0, _POOLED]
    device = DEVICES[signature.device].runtime()
    if device is not None:
        device.load()
        devices = [device.NUMBER, 0, _POOLED, *devices]
    names = {LIBRARY: signature.weights}
    names |= {entry.library: entry.weights for entry in signature.entries}
    machines = [
        {library: _load_machine(folder / library, devices) for library in names}
        for _ in range(instances)
    ]
    stored_weights = of(list(dict.fromkeys(name for each in names.values() for name in each)))
    weights = {library: [stored_weights[name] for name in each] for library, each in names.items()}
    for library, machine in machines[0].items():
        weights[library] = _prepare_weights(machine, library, weights[library])
    models = [_make_instance(signature, each, weights, steps) for each in machines]
    return models[0] if instances == 1 else ModelInstances(models)


def _make_instance(
    signature: Signature,
    machines: Mapping[str, "Module"],
    weights: Mapping[str, Sequence[object]],
    steps: Sequence[int],
) -> LoadedModel | OpenModel:
    threads = KernelThreads(signature.threads)
    if signature.dimensions:
        return OpenModel(signature, machines, weights, threads)
    return LoadedModel(
        signature, machines[LIBRARY], [*_to_size_shapes(steps), *weights[LIBRARY]], threads
    )


def _to_size_shapes(steps: Sequence[int]) -> list[object]:
    from tvm_ffi import Shape

    return [Shape(tuple(steps))] if steps else []


def load_artifact(library: Path, threads: int | None = None) -> Model:
    """Load the artifact of the stage *build*, by default with the threads it was built for."""
    from autopipe.artifacts.library import BuiltLibrary

    return load_model(library, BuiltLibrary.read(library).signature, threads=threads)


def load_kernel(library: Path, name: str) -> "Function":
    """Load a kernel of a library, to be called with tensors. Raises StageError."""
    from tvm_ffi import load_module

    shorten_spin()
    _load_runtime()
    try:
        with limit_library_threads():
            kernel: Function = load_module(library).get_function(name, query_imports=True)
    except (RuntimeError, AttributeError) as error:
        raise StageError(f"{library.name} cannot be loaded: {find_last_line(error)}") from error
    return kernel


def _load_machine(library: Path, devices: Sequence[int]) -> "Module":
    from tvm_ffi import load_module

    try:
        with limit_library_threads():
            machine = load_module(library)["vm_load_executable"]()
        machine["vm_initialization"](*devices)
        machine["main"]  # which a model has
    except (RuntimeError, AttributeError) as error:
        raise StageError(f"{library.name} cannot be loaded: {find_last_line(error)}") from error
    return machine


def _prepare_weights(machine: "Module", library: str, weights: Sequence[Any]) -> list[object]:
    """Convert weights by the library's own function, if it has one, which also checks them."""
    try:
        prepare = machine[PREPARE]
    except AttributeError:
        return list(weights)
    try:
        prepared_weights = list(prepare(*weights))
    except (RuntimeError, ValueError, TypeError) as error:
        raise StageError(f"{library} takes other weights: {find_last_line(error)}") from error
    stored_addresses = {weight.data_ptr() for weight in weights}
    return [
        w if w.data_ptr() in stored_addresses else _move_to_large_pages(w) for w in prepared_weights
    ]


def _move_to_large_pages(weight: Any) -> object:  # noqa: ANN401 - a tensor of TVM
    """Copy a transformed weight, which TVM allocates in pages of 4 KiB, to huge pages."""
    if str(weight.dtype) != "float32":
        return weight
    array = np.from_dlpack(weight)
    return as_tensor(copy_array(array)) if array.nbytes >= PAGE else weight


@cache
def _load_runtime() -> None:
    with omit_torch():
        from tvm_ffi.libinfo import load_lib_ctypes

    spec = find_spec("tvm")
    if spec is None or spec.submodule_search_locations is None:
        raise SetupError("apache-tvm is not installed: pip install autopipe")
    folders = [Path(folder, "lib") for folder in spec.submodule_search_locations]
    load_lib_ctypes("tvm", "tvm_runtime", "RTLD_GLOBAL", folders)
    load_lib_ctypes("tvm", "tvm_runtime_extra", "RTLD_LOCAL", folders)  # sort, topk


def _read_weights(
    data: np.ndarray, names: Collection[str], halves: frozenset[str]
) -> dict[str, object]:
    """Return weights as tensors by name; those of `halves` are stored as float16, cast to float32.

    They share the memory of `data` where that is aligned; the others are copied once.
    """
    try:
        header = read_header(data.data)
        views = {name: view_weight(data, header[name]) for name in names}
    except (ValueError, KeyError) as error:
        raise StageError(f"{WEIGHTS} cannot be read: {error}") from error
    for name in halves & header.keys():
        if (dtype := header[name].dtype) != "float16":
            raise StageError(f"{WEIGHTS}: {name} is {dtype} instead of float16")
    copied_names = [name for name in names if name in halves or views[name].ctypes.data % ALIGNMENT]
    arena = Arena(sum(2 * views[name].nbytes + ALIGNMENT for name in copied_names))
    for name in copied_names:  # in the order of their use
        view = views[name]
        views[name] = arena.take(view.shape, np.float32 if name in halves else view.dtype)
        np.copyto(views[name], view)
    return {
        name: as_tensor(view, bfloat16=header[name].dtype == "bfloat16")
        for name, view in views.items()
    }


def as_tensor(array: np.ndarray, *, bfloat16: bool = False) -> object:
    """Wrap an array as a tensor that shares its memory.

    Numpy has no bfloat16: pass an ml_dtypes array, or the bits as uint16 with `bfloat16`.
    """
    from tvm_ffi import Shape, dtype, from_dlpack, get_global_func

    if not bfloat16 and array.dtype.name != "bfloat16":
        return from_dlpack(array)
    view = get_global_func("runtime.TVMTensorCreateView")
    return view(from_dlpack(array.view(np.uint16)), Shape(array.shape), dtype("bfloat16"), 0)
