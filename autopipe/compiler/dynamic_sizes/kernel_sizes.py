"""What is known of open sizes, and a kernel made one for certain sizes.

`main` takes the number of multiples of each size as a shape, after the inputs:

    main(x: Tensor([1, 3, 32 * height, 32 * width]), sizes: Shape([height, width]), weights...)

Kernels have the same names for them: with 20 and 10 a parameter of `32 * height` by `32 * width`
becomes one of 640 by 320.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Final, Self

import tvm
from tvm import relax, tirx
from tvm.sym import Analyzer
from tvm_ffi import StructuralMutator, structural_mutate

from autopipe.compiler.graph.calls import find_callee, graph_functions, list_bindings
from autopipe.compiler.module_io import list_prim_funcs
from autopipe.compiler.recurrence.fix_recurrence import open_form
from autopipe.config.dimension import Dimension, Sizes, list_end_sizes, list_likely_sizes
from autopipe.errors import ConfigError

SIZES: Final = "autopipe.sizes"
"""Attribute of a PrimFunc with open sizes: how many multiples each has at least, probably and at
most, in their order."""

FOUND: Final = "found."
"""What the names of sizes begin with that the model computes; no dimension of a pipeline does."""

FOUND_SIZES: Final = "autopipe.found"
"""Attribute of `main`: the sizes that the model computes, 0 or more, each with its most."""

_ARITHMETIC: Final = (
    tirx.Add, tirx.Sub, tirx.Mul, tirx.FloorDiv, tirx.FloorMod, tirx.Min, tirx.Max,
)  # fmt: skip

_GUESS: Final = 100
"""What a node probably finds, if nobody says how many."""

Counts = Mapping[str, int]
"""How many multiples each open size has, by its name."""


def count_multiples(dimensions: Mapping[str, Dimension], sizes: Sizes) -> dict[str, int]:
    """Return how many multiples each size has: 20 for 640 with a multiple of 32."""
    return {name: size // dimensions[name].multiple for name, size in sizes.items()}


@dataclass(frozen=True, slots=True)
class OpenSizes:
    """What is known of the open sizes of a function."""

    smallest: Counts
    likely: Counts
    largest: Counts

    @classmethod
    def of(cls, dimensions: Mapping[str, Dimension]) -> Self:
        """Return what a pipeline says; the first of likely sizes counts."""
        if not dimensions:
            return cls({}, {}, {})
        smallest, largest = list_end_sizes(dimensions)
        found = (
            count_multiples(dimensions, sizes)
            for sizes in (smallest, list_likely_sizes(dimensions)[0], largest)
        )
        return cls(*found)

    def also(self, module: tvm.IRModule, said: Mapping[str, int]) -> Self:
        """Return what is known, of sizes that a module computes too.

        `said` has how many a node finds probably, by its name; of the others it is 100, or the
        most that it can find. Raises ConfigError for a node that finds nothing.
        """
        given = (module["main"].attrs or {}).get(FOUND_SIZES, ())
        most = {str(name): int(number) for name, number in given}
        if unknown := sorted(said.keys() - {name.removeprefix(FOUND) for name in most}):
            nodes = ", ".join(repr(name.removeprefix(FOUND)) for name in most) or "none"
            raise ConfigError(
                f"model.found.{unknown[0]}: no size of the model is called so; it computes {nodes}"
            )
        known = [dict(self.smallest), dict(self.likely), dict(self.largest)]
        for name, largest in most.items():
            number = said.get(name.removeprefix(FOUND), min(largest, _GUESS))
            for counts, count in zip(known, (0, number, max(number, largest)), strict=True):
                counts[name] = count
        return type(self)(*known)


def annotate_sizes(module: tvm.IRModule, known: OpenSizes) -> tvm.IRModule:
    """Return a lowered module whose PrimFuncs with open sizes say what is known of them."""
    if not known.likely:
        return module
    changed = tvm.IRModule(dict(module.functions_items()), attrs=module.attrs)
    for name, function in list_prim_funcs(module):
        said = (
            _describe_call_sizes(module, name, known)
            if open_form(function)
            else _describe_sizes(function, known)
        )
        if said:
            changed.update_func(module.get_global_var(name), function.with_attr(SIZES, said))
    return changed


def _describe_sizes(function: tirx.PrimFunc, known: OpenSizes) -> list[list[int]]:
    """Return what is known of the sizes of a PrimFunc, which are called like those of `main`."""
    found = [str(variable.name) for variable in open_variables(function)]
    if not all(size in known.likely for size in found):
        return []
    each = (known.smallest, known.likely, known.largest)
    return [[counts[size] for counts in each] for size in found]


def _describe_call_sizes(module: tvm.IRModule, name: str, known: OpenSizes) -> list[list[int]]:
    """Return what is known of the sizes of a PrimFunc that has its own names for them.

    Nothing is, where it is called twice, or a size may shrink where one of the model grows.
    """
    values = [one.value for _, body in graph_functions(module) for one in list_bindings(body)]
    calls = [value for value in values if find_callee(value) == name]
    if len(calls) != 1:
        return []
    params, arguments = module[name].params, calls[0].args[1].fields
    given = [
        (extent, value)
        for param, argument in zip(params, arguments, strict=False)
        for extent, value in zip(param.ty.shape, argument.ty.shape.values, strict=True)
    ]
    said: list[list[int]] = []
    for size in open_variables(module[name]):
        extent = next(value for extent, value in given if extent.same_as(size))
        each = (known.smallest, known.likely, known.largest)
        counts = [count for one in each if (count := _evaluate_monotonic(extent, one)) is not None]
        if len(counts) < len(each):
            return []
        said.append(counts)
    return said


def _evaluate_monotonic(extent: tirx.Expr, counts: Counts) -> int | None:
    """Return an extent at some sizes, or None if it may shrink where one of them grows."""
    found: list[tirx.Var] = []
    _add_distinct(found, tirx.analysis.undefined_vars(extent))
    names = [str(size.name) for size in found]
    if not _is_monotonic(extent) or not all(name in counts for name in names):
        return None
    return _evaluate_extent(extent, found, [counts[name] for name in names])


def open_variables(function: tirx.PrimFunc) -> list[tirx.Var]:
    """Return the open sizes of a PrimFunc, in the order of its parameters."""
    found: list[tirx.Var] = []
    for param in function.params:
        if not isinstance(param.ty, tirx.BufferType):
            _add_distinct(found, [param])
            continue
        for extent in param.ty.shape:
            if not isinstance(extent, tirx.IntImm):
                _add_distinct(found, tirx.analysis.undefined_vars(extent))
    return found


def _add_distinct(found: list[tirx.Var], variables: Iterator[tirx.Var] | list[tirx.Var]) -> None:
    for variable in variables:
        if not any(variable.same_as(other) for other in found):
            found.append(variable)


def read_open_sizes(function: tirx.PrimFunc) -> OpenSizes | None:
    """Return what `annotate_sizes` has written into a PrimFunc; None if its sizes are not open."""
    said = (function.attrs or {}).get(SIZES)
    if said is None:
        return None
    names = [str(variable.name) for variable in open_variables(function)]
    each = zip(*(map(int, counts) for counts in said), strict=True)
    return OpenSizes(*(dict(zip(names, counts, strict=True)) for counts in each))


def bind_kernel_sizes(module: tvm.IRModule, counts: Counts) -> tvm.IRModule:
    """Return a module whose `main` is a PrimFunc with its open sizes bound."""
    function = module["main"]
    variables = open_variables(function)

    def value(var: tvm.ir.Var, mutator: StructuralMutator) -> tvm.ir.Expr:
        if any(var.same_as(other) for other in variables):
            return tirx.IntImm(var.ty.dtype, counts[str(var.name)])
        return mutator.default_mutate(var)

    def folded(node: tvm.ir.Expr, mutator: StructuralMutator) -> tvm.ir.Expr:
        """Compute what has become a constant, as 32 * 20 has."""
        changed = mutator.default_mutate(node)
        if isinstance(changed.a, tirx.IntImm) and isinstance(changed.b, tirx.IntImm):
            return Analyzer().simplify(changed)
        return changed

    def compared(node: tirx.LE, mutator: StructuralMutator) -> tvm.ir.Expr:
        """Write `i <= 160` as `i < 161`, which a build for this size has."""
        changed = mutator.default_mutate(node)
        if isinstance(node.b, tirx.IntImm) or not isinstance(changed.b, tirx.IntImm):
            return changed
        return tirx.LT(changed.a, tirx.IntImm(changed.b.ty.dtype, int(changed.b) + 1))

    closing = [
        (tvm.ir.Var, value),
        (tirx.LE, compared),
        *((kind, folded) for kind in _ARITHMETIC),
    ]
    body = structural_mutate(_drop_size_params(function), closing)
    return tvm.IRModule({"main": body})


def list_size_params(function: tirx.PrimFunc) -> list[tuple[int, tirx.Var]]:
    """Return the parameters that are counts of open sizes, each with its position."""
    return [
        (at, param)
        for at, param in enumerate(function.params)
        if not isinstance(param.ty, tirx.BufferType)
    ]


def _drop_size_params(function: tirx.PrimFunc) -> tirx.PrimFunc:
    function = function.without_attr(SIZES)
    tensors = [param for param in function.params if isinstance(param.ty, tirx.BufferType)]
    if len(tensors) == len(function.params):
        return function
    return tirx.PrimFunc(tensors, function.body, function.ret_type, function.attrs)


def find_min_extent(extent: int | tirx.Expr, known: OpenSizes | None) -> int:
    """Return the least that an extent can be, but for 0; 0 if it may shrink where a size grows.

    What has no elements has no loops either. Example: of `28 * boxes` with none or more boxes it is
    28, of `boxes + 3` it is 3.
    """
    if isinstance(extent, int):
        return extent
    if known is None or not _is_monotonic(extent):
        return 0
    found: list[tirx.Var] = []
    _add_distinct(found, tirx.analysis.undefined_vars(extent))
    ends = (
        (known.smallest.get(str(size.name), 0), max(1, known.smallest.get(str(size.name), 0)))
        for size in found
    )
    values = (
        _evaluate_extent(extent, found, counts) for counts in product(*map(dict.fromkeys, ends))
    )
    return min((value for value in values if value), default=0)


def is_at_least(extent: int | tirx.Expr, length: int, known: OpenSizes | None) -> bool:
    """Tell whether a dynamic extent is always at least `length`, or 0."""
    return length <= 1 or find_min_extent(extent, known) >= length


def find_max_extent(extent: int | tirx.Expr, known: OpenSizes) -> float:
    """Return the most that an extent can be; infinity if it may shrink where a size grows."""
    if isinstance(extent, int):
        return extent
    closed = _evaluate_monotonic(extent, known.largest)
    return math.inf if closed is None else closed


def _evaluate_extent(
    extent: tirx.Expr, sizes: Sequence[tirx.Var], counts: Sequence[int]
) -> int | None:
    """Return an extent with its open sizes bound; None if that is no number."""

    def value(var: tvm.ir.Var, _: object) -> tvm.ir.Expr:
        pairs = zip(sizes, counts, strict=True)
        return next((tirx.IntImm(size.ty.dtype, count) for size, count in pairs
                     if size.same_as(var)), var)  # fmt: skip

    closed = Analyzer().simplify(structural_mutate(extent, [(tvm.ir.Var, value)]))
    return int(closed) if isinstance(closed, tirx.IntImm) else None


def _is_monotonic(extent: tirx.Expr) -> bool:
    """Tell whether an extent never shrinks where a size grows."""
    if isinstance(extent, tirx.Var | tirx.IntImm):
        return True
    if isinstance(extent, tirx.Cast):
        return _is_monotonic(extent.value)
    if isinstance(extent, tirx.Max | tirx.Min):
        return _is_monotonic(extent.a) and _is_monotonic(extent.b)
    if isinstance(extent, tirx.Add | tirx.Mul):
        negative = (
            isinstance(part, tirx.IntImm) and int(part) < 0 for part in (extent.a, extent.b)
        )
        lowered = isinstance(extent, tirx.Mul) and any(negative)
        return not lowered and _is_monotonic(extent.a) and _is_monotonic(extent.b)
    if isinstance(extent, tirx.Sub | tirx.FloorDiv):
        return isinstance(extent.b, tirx.IntImm) and _is_monotonic(extent.a)
    return False


def bind_likely_sizes(module: tvm.IRModule) -> tvm.IRModule | None:
    """Return a module whose `main` has open sizes with these as they probably are; else None."""
    known = read_open_sizes(module["main"])
    return None if known is None else bind_kernel_sizes(module, known.likely)


def is_dynamic(module: tvm.IRModule) -> bool:
    """Tell whether a model takes dynamic sizes, or computes some."""
    functions = {str(var.name_hint): function for var, function in module.functions_items()}
    if "main" not in functions:
        return False
    main = functions["main"]
    taken = any(isinstance(getattr(param, "ty", None), relax.ShapeType) for param in main.params)
    return taken or FOUND_SIZES in (main.attrs or {})


def has_computed_sizes(module: tvm.IRModule) -> bool:
    """Tell whether a model has sizes that do not follow from those of its inputs, as of NonZero."""
    return FOUND_SIZES in (module["main"].attrs or {})
