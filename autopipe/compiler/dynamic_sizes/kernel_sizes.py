"""Bounds of dynamic sizes, and kernels specialized for static sizes.

`main` takes the number of multiples of each size as a shape, after the inputs:

    main(x: Tensor([1, 3, 32 * height, 32 * width]), sizes: Shape([height, width]), weights...)

Kernels name the variables alike: with 20 and 10 a parameter of `32 * height` by `32 * width`
becomes one of 640 by 320.
"""

import math
import operator
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from typing import Any, Final, Self

import tvm
from tvm import relax, tirx
from tvm.sym import Analyzer
from tvm_ffi import StructuralMutator, structural_mutate

from autopipe.compiler.find_nodes import is_among
from autopipe.compiler.graph.calls import find_callee, graph_functions, list_bindings
from autopipe.compiler.module_io import list_prim_funcs
from autopipe.compiler.recurrence.fix_recurrence import open_form
from autopipe.config.dimension import Dimension, Sizes, list_end_sizes, list_likely_sizes
from autopipe.errors import ConfigError

SIZES: Final = "autopipe.sizes"
"""Attribute of a PrimFunc with dynamic sizes: the minimum, likely and maximum multiples of each, in
their order."""

FOUND: Final = "found."
"""Prefix of the names of data-dependent sizes; no dimension of a pipeline has it."""

FOUND_SIZES: Final = "autopipe.found"
"""Attribute of `main`: its data-dependent sizes, each with its maximum."""

_ARITHMETIC: Final[Mapping[type, Callable[[int, int], int]]] = {
    tirx.Add: operator.add, tirx.Sub: operator.sub, tirx.Mul: operator.mul,
    tirx.FloorDiv: operator.floordiv, tirx.FloorMod: operator.mod, tirx.Min: min, tirx.Max: max,
}  # fmt: skip

_GUESS: Final = 100
"""Likely value of a data-dependent size without a setting."""

Counts = Mapping[str, int]
"""The multiples of each dynamic size, by name."""


def count_multiples(dimensions: Mapping[str, Dimension], sizes: Sizes) -> dict[str, int]:
    """Convert sizes to multiples: 640 to 20 with a multiple of 32."""
    return {name: size // dimensions[name].multiple for name, size in sizes.items()}


@dataclass(frozen=True, slots=True)
class DynamicSizes:
    """Minimum, likely and maximum multiples of the dynamic sizes of a function."""

    smallest: Counts
    likely: Counts
    largest: Counts

    @classmethod
    def of(cls, dimensions: Mapping[str, Dimension]) -> Self:
        """Return the bounds of a pipeline's dimensions; of several likely sizes the first."""
        if not dimensions:
            return cls({}, {}, {})
        smallest, largest = list_end_sizes(dimensions)
        counts = (
            count_multiples(dimensions, sizes)
            for sizes in (smallest, list_likely_sizes(dimensions)[0], largest)
        )
        return cls(*counts)

    def also(self, module: tvm.IRModule, expected_counts: Mapping[str, int]) -> Self:
        """Add the bounds of the data-dependent sizes of a module.

        `expected_counts` has the likely size of a node's result, by the node's name; the default is
        100, or the maximum if that is less. Raises ConfigError for a node without such a size.
        """
        computed_sizes = (module["main"].attrs or {}).get(FOUND_SIZES, ())
        most = {str(name): int(number) for name, number in computed_sizes}
        if extra := sorted(expected_counts.keys() - {name.removeprefix(FOUND) for name in most}):
            nodes = ", ".join(repr(name.removeprefix(FOUND)) for name in most) or "none"
            raise ConfigError(
                f"model.found.{extra[0]}: no size of the model is called so; it computes {nodes}"
            )
        bounds = [dict(self.smallest), dict(self.likely), dict(self.largest)]
        for name, largest in most.items():
            number = expected_counts.get(name.removeprefix(FOUND), min(largest, _GUESS))
            for counts, count in zip(bounds, (0, number, max(number, largest)), strict=True):
                counts[name] = count
        return type(self)(*bounds)


def annotate_sizes(module: tvm.IRModule, sizes: DynamicSizes) -> tvm.IRModule:
    """Annotate the PrimFuncs of a lowered module with the bounds of their dynamic sizes."""
    if not sizes.likely:
        return module
    annotated_module = tvm.IRModule(dict(module.functions_items()), attrs=module.attrs)
    for name, function in list_prim_funcs(module):
        annotation = (
            _describe_call_sizes(module, name, sizes)
            if open_form(function)
            else _describe_sizes(function, sizes)
        )
        if annotation:
            annotated_module.update_func(
                module.get_global_var(name), function.with_attr(SIZES, annotation)
            )
    return annotated_module


def _describe_sizes(function: tirx.PrimFunc, sizes: DynamicSizes) -> list[list[int]]:
    """Return the bounds of the sizes of a PrimFunc that are named as in `main`."""
    names = [str(variable.name) for variable in open_variables(function)]
    if not all(size in sizes.likely for size in names):
        return []
    bounds = (sizes.smallest, sizes.likely, sizes.largest)
    return [[counts[size] for counts in bounds] for size in names]


def _describe_call_sizes(module: tvm.IRModule, name: str, sizes: DynamicSizes) -> list[list[int]]:
    """Return the bounds of the sizes of a PrimFunc with its own names, from its call.

    Empty if it is called twice, or if a size is not monotonic in those of the model.
    """
    values = [b.value for _, body in graph_functions(module) for b in list_bindings(body)]
    calls = [value for value in values if find_callee(value) == name]
    if len(calls) != 1:
        return []
    params, arguments = module[name].params, calls[0].args[1].fields
    extents = [
        (extent, value)
        for param, argument in zip(params, arguments, strict=False)
        for extent, value in zip(param.ty.shape, argument.ty.shape.values, strict=True)
    ]
    rows: list[list[int]] = []
    for size in open_variables(module[name]):
        extent = next(value for extent, value in extents if extent.same_as(size))
        bounds = (sizes.smallest, sizes.likely, sizes.largest)
        counts = [n for bound in bounds if (n := _evaluate_monotonic(extent, bound)) is not None]
        if len(counts) < len(bounds):
            return []
        rows.append(counts)
    return rows


def _evaluate_monotonic(extent: tirx.Expr, counts: Counts) -> int | None:
    """Evaluate an extent at some sizes, or return None if it is not monotonic in them."""
    names = (str(size.name) for size in tirx.analysis.undefined_vars(extent))
    is_known = _is_monotonic(extent) and all(name in counts for name in names)
    return evaluate_extent(extent, counts) if is_known else None


def open_variables(function: tirx.PrimFunc) -> list[tirx.Var]:
    """List the variables of the dynamic sizes of a PrimFunc, in the order of its parameters."""
    variables: list[tirx.Var] = []
    for param in function.params:
        if not isinstance(param.ty, tirx.BufferType):
            _add_distinct(variables, [param])
            continue
        for extent in param.ty.shape:
            if not isinstance(extent, tirx.IntImm):
                _add_distinct(variables, tirx.analysis.undefined_vars(extent))
    return variables


def _add_distinct(distinct: list[tirx.Var], variables: Iterator[tirx.Var] | list[tirx.Var]) -> None:
    for variable in variables:
        if not is_among(variable, distinct):
            distinct.append(variable)


def read_dynamic_sizes(function: tirx.PrimFunc) -> DynamicSizes | None:
    """Read the annotation of `annotate_sizes` from a PrimFunc; None if its sizes are static."""
    annotation = (function.attrs or {}).get(SIZES)
    if annotation is None:
        return None
    names = [str(variable.name) for variable in open_variables(function)]
    bounds = zip(*(map(int, counts) for counts in annotation), strict=True)
    return DynamicSizes(*(dict(zip(names, counts, strict=True)) for counts in bounds))


def bind_kernel_sizes(module: tvm.IRModule, counts: Counts) -> tvm.IRModule:
    """Bind the dynamic sizes of the PrimFunc `main` of a module."""
    function = module["main"]
    variables = open_variables(function)

    def value(var: tvm.ir.Var, mutator: StructuralMutator) -> tvm.ir.Expr:
        if is_among(var, variables):
            return tirx.IntImm(var.ty.dtype, counts[str(var.name)])
        return mutator.default_mutate(var)

    def folded(node: tvm.ir.Expr, mutator: StructuralMutator) -> tvm.ir.Expr:
        """Fold an expression that has become constant, such as 32 * 20."""
        node_copy = mutator.default_mutate(node)
        if isinstance(node_copy.a, tirx.IntImm) and isinstance(node_copy.b, tirx.IntImm):
            return Analyzer().simplify(node_copy)
        return node_copy

    def compared(node: tirx.LE, mutator: StructuralMutator) -> tvm.ir.Expr:
        """Write `i <= 160` as `i < 161`, which a build for this size has."""
        node_copy = mutator.default_mutate(node)
        if isinstance(node.b, tirx.IntImm) or not isinstance(node_copy.b, tirx.IntImm):
            return node_copy
        return tirx.LT(node_copy.a, tirx.IntImm(node_copy.b.ty.dtype, int(node_copy.b) + 1))

    closing = [
        (tvm.ir.Var, value),
        (tirx.LE, compared),
        *((kind, folded) for kind in _ARITHMETIC),
    ]
    body = structural_mutate(_drop_size_params(function), closing)
    return tvm.IRModule({"main": body})


def list_size_params(function: tirx.PrimFunc) -> list[tuple[int, tirx.Var]]:
    """List the parameters that are counts of dynamic sizes, as (position, parameter)."""
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


def find_min_extent(extent: int | tirx.Expr, sizes: DynamicSizes | None) -> int:
    """Return the smallest extent other than 0; 0 if it is not monotonic in the sizes.

    An empty tensor has no loops. Example: for `28 * boxes` with 0 or more boxes it is 28, for
    `boxes + 3` it is 3.
    """
    if isinstance(extent, int):
        return extent
    if sizes is None or not _is_monotonic(extent):
        return 0
    names = sorted({str(size.name) for size in tirx.analysis.undefined_vars(extent)})
    ends = ((sizes.smallest.get(name, 0), max(1, sizes.smallest.get(name, 0))) for name in names)
    values = (
        evaluate_extent(extent, dict(zip(names, counts, strict=True)))
        for counts in product(*map(dict.fromkeys, ends))
    )
    return min((value for value in values if value), default=0)


def is_at_least(extent: int | tirx.Expr, length: int, sizes: DynamicSizes | None) -> bool:
    """Tell whether a dynamic extent is always at least `length`, or 0."""
    return length <= 1 or find_min_extent(extent, sizes) >= length


def find_max_extent(extent: int | tirx.Expr, sizes: DynamicSizes) -> float:
    """Return the largest extent; infinity if it is not monotonic in the sizes."""
    if isinstance(extent, int):
        return extent
    bound = _evaluate_monotonic(extent, sizes.largest)
    return math.inf if bound is None else bound


def evaluate_extent(extent: Any, counts: Counts) -> int | None:  # noqa: ANN401 - int or expression
    """Evaluate an extent at the multiples of its dynamic sizes.

    None if it has other variables, or operations beside integer arithmetic.
    """
    if isinstance(extent, int | tirx.IntImm):
        return int(extent)
    if isinstance(extent, tirx.Var):
        return counts.get(str(extent.name))
    if isinstance(extent, tirx.Cast):
        return evaluate_extent(extent.value, counts)
    if type(extent) not in _ARITHMETIC:
        return None
    first, second = (evaluate_extent(part, counts) for part in (extent.a, extent.b))
    is_undefined = isinstance(extent, tirx.FloorDiv | tirx.FloorMod) and not second
    if first is None or second is None or is_undefined:
        return None
    return _ARITHMETIC[type(extent)](first, second)


def _is_monotonic(extent: tirx.Expr) -> bool:
    """Tell whether an extent is monotonically increasing in its sizes."""
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
        decreases = isinstance(extent, tirx.Mul) and any(negative)
        return not decreases and _is_monotonic(extent.a) and _is_monotonic(extent.b)
    if isinstance(extent, tirx.Sub | tirx.FloorDiv):
        return isinstance(extent.b, tirx.IntImm) and _is_monotonic(extent.a)
    return False


def bind_likely_sizes(module: tvm.IRModule) -> tvm.IRModule | None:
    """Bind the dynamic sizes of `main` to their likely values; None if all are static."""
    sizes = read_dynamic_sizes(module["main"])
    return None if sizes is None else bind_kernel_sizes(module, sizes.likely)


def is_dynamic(module: tvm.IRModule) -> bool:
    """Tell whether a model has dynamic or data-dependent shapes."""
    functions = {str(var.name_hint): function for var, function in module.functions_items()}
    if "main" not in functions:
        return False
    main = functions["main"]
    has_shape_param = any(
        isinstance(getattr(param, "ty", None), relax.ShapeType) for param in main.params
    )
    return has_shape_param or FOUND_SIZES in (main.attrs or {})


def has_computed_sizes(module: tvm.IRModule) -> bool:
    """Tell whether a model has data-dependent shapes, such as of NonZero."""
    return FOUND_SIZES in (module["main"].attrs or {})
