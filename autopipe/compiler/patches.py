"""All changes that autopipe makes to TVM or to Python for a whole process.

    omit_torch           `import tvm_ffi` imports PyTorch
    list_functions_once  `import tvm` lists its 2,000 functions 50 times
    load_cpu_intrinsics  a search registers the intrinsics of every device
    skip_call_stack      TVMScript reads the source of every caller
    cache_type_hints     primitives of schedules analyze their own type hints at each call
    cache_callbacks      walks and maps analyze their callbacks at each call
    iterate_arrays       iterating over an array looks at each place anew
    order_size_variables a kernel takes sizes in the order of addresses, another in each process
    replace_converters   the ONNX importer takes no converters
    replace_build        constant folding compiles code without inspection

Each says when it can go; its test in `tests/compiler/test_patches.py` fails once TVM does not need
it. Importing this module imports no TVM. What TVM has an interface for is no patch: lists of passes
(`register_tir_pipeline`) and legalizations (`register_op_attr`).
"""

import inspect
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from importlib import import_module
from itertools import repeat
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any, Final

_TORCH: Final = "torch"
_INTRINSICS: Final = "tvm.s_tir.tensor_intrin"


@contextmanager
def omit_torch() -> Iterator[None]:
    """Make an import of PyTorch fail for now, as if it were not installed.

    tvm_ffi imports PyTorch wherever it is installed, to exchange tensors with it (apache/tvm-ffi
    pull request 156), and PyTorch looks for a GPU: that takes seconds, starts threads and touches
    CUDA, so that no child of the process can use the GPU. A process that has imported PyTorch
    keeps it, and it can be imported afterwards.

    It can go once tvm_ffi imports PyTorch on first use, or a variable prevents it.
    """
    if _TORCH in sys.modules:
        yield
        return
    sys.modules[_TORCH] = None  # type: ignore[assignment]  # an import of it fails
    try:
        yield
    finally:
        sys.modules.pop(_TORCH, None)


@contextmanager
def list_functions_once() -> Iterator[None]:
    """List the names of TVM's functions once while TVM is imported, which saves a fifth of it.

    Each of TVM's 50 `_ffi_api` modules lists all names and takes those with its prefix. All were
    registered when the library was loaded.

    It can go once the modules look up single names, or the listing is cached.
    """
    from tvm_ffi import registry

    original = registry.list_global_func_names
    cached_listing = cache(original)

    def list_names() -> list[str]:
        return cached_listing() if "tvm.base" in sys.modules else original()

    registry.list_global_func_names = list_names
    try:
        yield
    finally:
        registry.list_global_func_names = original


def load_cpu_intrinsics(machine: str) -> None:
    """Register only the tensor intrinsics of CPUs of a kind of machine, such as `x86_64`.

    A TuneContext imports `tvm.s_tir.tensor_intrin`, which parses the intrinsics of every device
    that TVM knows: 10 to 30 s of CPU time, nearly all of it for CUDA. Design spaces for CPUs use
    those of their own kind. So an empty package takes its place, with the module of that kind
    alone. Call it before the first TuneContext is made.

    It can go once TVM registers intrinsics by kind of target.
    """
    if _INTRINSICS not in sys.modules:
        import tvm.s_tir

        package = ModuleType(_INTRINSICS)
        package.__path__ = [str(Path(str(tvm.s_tir.__file__)).with_name("tensor_intrin"))]
        sys.modules[_INTRINSICS] = package
    with skip_call_stack():
        import_module(f"{_INTRINSICS}.{'arm_cpu' if machine == 'aarch64' else 'x86'}")


@contextmanager
def skip_call_stack() -> Iterator[None]:
    """Make `inspect.stack` return no frame while TVMScript is parsed, in a single thread.

    `T.prim_func` and `R.function` call it, which reads the source of every caller: 0.1 s for each
    function. They use it only for a function in a Python class and for annotations that are
    strings, which nothing has that autopipe parses.

    It can go once these decorators walk frames themselves.
    """
    original = inspect.stack
    inspect.stack = _return_no_frames
    try:
        yield
    finally:
        inspect.stack = original


def _return_no_frames(context: int = 1) -> list[inspect.FrameInfo]:  # noqa: ARG001 - as `inspect.stack`
    return []


def cache_type_hints() -> None:
    """Make TVM analyze each type hint of the primitives of schedules once in this process.

    It does so at each call, which is a good part of the time of a primitive where a template or a
    trace applies hundreds. Nothing is checked less.

    It can go once TVM caches them, or does not check its arguments in Python.
    """
    from tvm.s_tir.schedule import _type_checker

    original = getattr(_type_checker, "_dispatcher", None)
    if original is not None and not hasattr(original, "cache_info"):
        setattr(_type_checker, "_dispatcher", cache(original))  # noqa: B010 - TVM's own name


def cache_callbacks() -> None:
    """Make tvm_ffi analyze the type and the signature of a callback once in this process.

    `structural_walk` and `structural_map` do the former at each call, and `structural_mutate` the
    latter by `inspect` as well, which takes longer than to mutate a small expression. A function
    that is defined anew at each call has the same code, and so the same signature.

    It can go once tvm_ffi caches both.
    """
    from tvm_ffi import structural

    find_type, accepts_mode = (
        getattr(structural, name)
        for name in ("_callback_type_to_type_index", "_callback_accepts_inplace_mode")
    )
    if hasattr(find_type, "cache_info"):
        return
    answers: dict[tuple[CodeType, int], bool] = {}

    def accept(callback: Callable[..., Any]) -> bool:
        if not isinstance(callback, FunctionType):
            return bool(accepts_mode(callback))
        signature = callback.__code__, len(callback.__defaults__ or ())
        if signature not in answers:
            answers[signature] = accepts_mode(callback)
        return answers[signature]

    setattr(structural, "_callback_type_to_type_index", cache(find_type))  # noqa: B010 - theirs
    setattr(structural, "_callback_accepts_inplace_mode", accept)  # noqa: B010 - likewise


def iterate_arrays() -> None:
    """Make iterating over an array of TVM take its elements without checks.

    It checks each place anew. That takes twice as long, and passes over a large graph iterate over
    millions of shapes and operands. An array does not change, so that its elements are the same.

    It can go once tvm_ffi iterates without these checks.
    """
    from tvm_ffi import _ffi_api
    from tvm_ffi.container import Array

    get, count = _ffi_api.ArrayGetItem, _ffi_api.ArraySize

    def iterate(array: Any) -> Iterator[Any]:  # noqa: ANN401 - of anything
        return map(get, repeat(array), range(count(array)))

    setattr(Array, "__iter__", iterate)  # noqa: B010 - of a class of theirs


def compare_variables() -> None:
    """Compare variables of tensors by identity alone.

    TVM looks first whether a variable is a number, of which `==` makes an expression. That takes
    ten times as long as the comparison, and dictionaries by variables compare them millions of
    times.

    It can go once TVM compares variables of tensors at once.
    """
    from tvm.ir import TupleType, Var
    from tvm.relax import TensorType
    from tvm_ffi import Object

    of_numbers, tensors = Var.__eq__, (TensorType, TupleType)

    def compare(variable: Any, other: object) -> Any:  # noqa: ANN401 - an expression of numbers
        if type(variable.ty) in tensors:
            return Object.__eq__(variable, other)
        return of_numbers(variable, other)

    setattr(Var, "__eq__", compare)  # noqa: B010 - of a class of theirs


class _OrderedSet(dict[object, None]):
    """The methods of a set that `tvm.relax.utils` calls, in insertion order."""

    def add(self, element: object) -> None:
        """Add an element."""
        self[element] = None

    def update(self, elements: Iterable[object]) -> None:  # type: ignore[override]  # as of a set
        """Add elements."""
        super().update(dict.fromkeys(elements))

    def __sub__(self, other: "_OrderedSet") -> list[object]:
        """Return the elements that are not in another set."""
        return [element for element in self if element not in other]


def order_size_variables() -> None:
    """Make a kernel take the sizes that its shapes are computed of in the order of their use.

    `emit_te` and all legalizations collect them in a set of objects that are hashed by address: of
    `[2 * rows, 3 * columns]` a kernel takes rows or columns first, which is another program in each
    process. A build would not come out the same again.

    It can go once `gen_call_tir_inputs` orders them.
    """
    from tvm.relax import utils

    setattr(utils, "set", _OrderedSet)  # noqa: B010 - a name that the module looks up


@contextmanager
def replace_converters(converters: Mapping[str, object]) -> Iterator[None]:
    """Make TVM's ONNX importer use these converters, by operator.

    It can go once `from_onnx` takes converters.
    """
    from tvm.relax.frontend.onnx import onnx_frontend

    original = onnx_frontend._get_convert_map  # noqa: SLF001 - the only way
    onnx_frontend._get_convert_map = lambda: converters  # noqa: SLF001
    try:
        yield
    finally:
        onnx_frontend._get_convert_map = original  # noqa: SLF001


def replace_build(compile_function: Callable[..., Any]) -> None:
    """Make constant folding compile with a function of (PrimFunc, target, ...).

    TVM's folding compiles kernels and runs them, so they have to be inspected first. It finds the
    function by its name, `tirx.build`.

    It can go once folding takes a compiler as an argument, or is done without machine code.
    """
    import tvm

    tvm.register_global_func("tirx.build", compile_function, override=True)
