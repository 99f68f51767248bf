"""Has parts of a concatenation written where they belong, so that nobody copies them.

    a = call_tir(left, x): [1, 55, 55, 64]              joined: [1, 55, 55, 128]
    b = call_tir(right, x): [1, 55, 55, 64]      ->     first = call_tir(left_at_0, x): joined
    y = call_tir(concatenate, a, b)                     y = call_tir_inplace(right_at_64, x, first)

`left_at_0` is `left` with a larger result, of which it writes the first 64 channels; `right_at_64`
adds 64 to the last index of what it writes. Their loops, and so their schedules, stay what they
are. This is done where sizes are known, all parts are made by kernels, and nobody else reads them.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import tvm
import tvm_ffi
from tvm import relax, tirx
from tvm.ir import Call, TensorLoad, TensorRegion
from tvm.relax.expr_functor import PyExprMutator, mutator

from autopipe.compiler.graph.calls import bindings, callee
from autopipe.compiler.graph.literals import known_shape
from autopipe.compiler.graph.rewrite import rewrite
from autopipe.compiler.module_io import prim_funcs
from autopipe.compiler.op_info import carried

Concatenations = Mapping[str, int]
"""The axis along which a PrimFunc concatenates all its arguments in order, by its name."""


@dataclass(frozen=True, slots=True)
class _Part:
    """A part of a concatenation, where it is made."""

    whole: relax.Var
    """The concatenation, as it was bound."""
    axis: int
    offset: int
    """Where along the axis it begins."""


def concatenations(lowered: tvm.IRModule) -> dict[str, int]:
    """Return which PrimFuncs of a lowered module do nothing but concatenate."""
    found = {}
    for name, function in prim_funcs(lowered):
        ops = carried(function).ops
        if len(ops) == 1 and ops[0].name == "concat" and ops[0].whole:
            axis = ops[0].attributes.get("axis")
            found[name] = axis if isinstance(axis, int) else 0
    return found


def written_in_place(module: tvm.IRModule, known: Concatenations) -> tvm.IRModule:
    """Return the module with parts of concatenations written in place.

    `module` holds scheduled PrimFuncs, and `known` says which of them concatenate.
    """
    parts = dict(_parts(module, known)) if known else {}
    if not parts:
        return module
    return relax.transform.DeadCodeElimination()(rewrite(_InPlace(module, parts), module))


def _parts(module: tvm.IRModule, known: Concatenations) -> Iterator[tuple[relax.Var, _Part]]:
    """Yield what becomes a part of a concatenation."""
    main = module["main"]
    bound = {binding.var: binding.value for binding in bindings(main)}
    reads: Counter[relax.Var] = Counter()
    for value in (*bound.values(), main.body.body):
        reads.update(relax.analysis.free_vars(value))
    for variable, value in bound.items():
        axis, shape = known.get(callee(value) or ""), known_shape(variable)
        if axis is None or shape is None or not isinstance(variable, relax.DataflowVar):
            continue
        made = list(value.args[1])
        alone = len(set(made)) == len(made) and all(reads[part] == 1 for part in made)
        if not alone or not all(_is_placed(module, bound.get(part)) for part in made):
            continue
        axis, offset = axis % len(shape), 0
        for part in made:
            yield part, _Part(variable, axis, offset)
            offset += (known_shape(part) or shape)[axis]


def _is_placed(module: tvm.IRModule, value: relax.Expr | None) -> bool:
    """Tell whether a value is the one result of a kernel that can write it into a larger tensor."""
    name = None if value is None else callee(value)
    if value is None or name is None or len(value.args) != 2:  # noqa: PLR2004 - no sizes besides
        return False
    function = module[name]
    result = function.params[-1]
    fits = isinstance(value.ty, relax.TensorType) and isinstance(result.ty, tirx.BufferType)
    return fits and known_shape(value) is not None and only_indexed(function.body, result)


def only_indexed(body: tirx.Stmt, buffer: tirx.Var) -> bool:
    """Tell whether all that code does with a buffer is to read and write it at indices.

    A library is given the address of an element, and steps on as if the rest lay behind it.
    """
    seen: list[tirx.Var] = []
    indexed: list[object] = []
    addressed: list[object] = []

    def note(node: TensorLoad | TensorRegion | tirx.BufferStore) -> None:
        source = node.buffer if isinstance(node, tirx.BufferStore) else node.source
        if source.same_as(buffer):
            indexed.append(node)

    def call(node: Call) -> None:
        if getattr(node.op, "name", "") == "tirx.address_of":
            addressed.extend(arg for arg in node.args if _reads(arg, buffer))

    tvm_ffi.structural_walk(body, (tirx.Var, seen.append))
    tvm_ffi.structural_walk(body, (Call, call))
    for kind in (TensorLoad, TensorRegion, tirx.BufferStore):
        tvm_ffi.structural_walk(body, (kind, note))
    return not addressed and len(indexed) == sum(var.same_as(buffer) for var in seen)


def _reads(value: tvm.ir.Expr, buffer: tirx.Var) -> bool:
    return isinstance(value, TensorLoad) and bool(value.source.same_as(buffer))


def placed(function: tirx.PrimFunc, shape: Sequence[int], axis: int, offset: int) -> tirx.PrimFunc:
    """Return a function that writes its result into a larger one, from an offset along an axis."""
    old = function.params[-1]
    extents = [tirx.IntImm(old.ty.shape[at].ty.dtype, n) for at, n in enumerate(shape)]
    new = tirx.decl_buffer(extents, old.ty.dtype, old.name)

    def moved(indices: Sequence[tvm.ir.Expr]) -> list[tvm.ir.Expr]:
        return [at + offset if number == axis else at for number, at in enumerate(indices)]

    def load(node: TensorLoad, mutator: tvm_ffi.StructuralMutator) -> tvm.ir.Expr:
        node = mutator.default_mutate(node)
        return new[tuple(moved(node.indices))] if node.source.same_as(old) else node

    def store(node: tirx.BufferStore, mutator: tvm_ffi.StructuralMutator) -> tirx.Stmt:
        node = mutator.default_mutate(node)
        if not node.buffer.same_as(old):
            return node
        return tirx.BufferStore(new, node.value, moved(node.indices))

    def region(node: TensorRegion, mutator: tvm_ffi.StructuralMutator) -> TensorRegion:
        node = mutator.default_mutate(node)
        if not node.source.same_as(old):
            return node
        starts = moved([one.min for one in node.region])
        extents = [one.extent for one in node.region]
        return new[tuple(slice(at, at + n) for at, n in zip(starts, extents, strict=True))]

    body = tvm_ffi.structural_mutate(
        function.body, [(TensorLoad, load), (tirx.BufferStore, store), (TensorRegion, region)]
    )
    return tirx.PrimFunc([*function.params[:-1], new], body, function.ret_type,
                         attrs=function.attrs)  # fmt: skip


@mutator
class _InPlace(PyExprMutator):
    """Makes each kernel write its part into what the part before it was written into."""

    def __init__(self, module: tvm.IRModule, parts: Mapping[relax.Var, _Part]) -> None:
        super().__init__(module)
        self._module = module
        self._parts = parts
        self._whole = {part.whole for part in parts.values()}
        self._written: dict[relax.Var, relax.Var] = {}
        """What each concatenation was last written into."""

    def visit_var_binding_(self, binding: relax.VarBinding) -> None:
        part = self._parts.get(binding.var)
        if part is not None:
            self._written[part.whole] = self.builder_.emit(self._call(binding.value, part))
        elif binding.var in self._whole:
            self.set_var_remap(binding.var, self._written[binding.var])
        else:
            super().visit_var_binding_(binding)

    def _call(self, value: relax.Call, part: _Part) -> relax.Call:
        shape = known_shape(part.whole) or ()
        name = callee(value) or ""
        function = placed(self._module[name], shape, part.axis, part.offset)
        called = self.builder_.add_func(function, f"{name}_at_{part.offset}")
        given = [self.visit_expr(argument) for argument in value.args[1]]
        kind = relax.TensorType(shape, value.ty.dtype)
        if part.whole not in self._written:
            return relax.call_tir(called, given, kind)
        given.append(self._written[part.whole])
        return relax.op.call_tir_inplace(called, relax.Tuple(given), [len(given) - 1], kind)
