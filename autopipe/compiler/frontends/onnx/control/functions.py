"""Bodies of control flow as private functions of the module."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import tvm_ffi
from onnx import GraphProto
from tvm import relax, tirx
from tvm.ir import Expr, GenericConst, GlobalVar, IRModule, Type
from tvm.relax.frontend.onnx import onnx_frontend

from autopipe.compiler.frontends.onnx.control.scopes import list_captured
from autopipe.compiler.frontends.onnx.conversion import operand_facts
from autopipe.compiler.frontends.onnx.conversion.converter_types import (
    Attributes,
    BlockBuilder,
    Inputs,
)
from autopipe.errors import ModelError

# ruff: noqa: SLF001  TVM's importer has no public interface

_KNOWN = (GenericConst, relax.ShapeExpr, tirx.IntImm)
"""What an importer of operators has to see: it is part of the code, and no value at run time."""


Results = Callable[[BlockBuilder, list[Expr]], list[Expr]]
"""Adds to what a body computes: (builder of the body, its results)."""


@dataclass(frozen=True, slots=True)
class Around:
    """What a body reads from around it."""

    names: tuple[str, ...]
    """Names of the values that are given at run time."""
    values: tuple[Expr, ...]
    constants: Mapping[str, Expr]
    """Values that are known, by name."""

    @classmethod
    def of(cls, graphs: Sequence[GraphProto], nodes: Mapping[str, Expr]) -> "Around":
        """Find what bodies read, among the values of the graph they stand in."""
        read = dict.fromkeys(name for graph in graphs for name in list_captured(graph))
        missing = [name for name in read if name not in nodes]
        if missing:
            raise ModelError(f"a body of If, Loop or Scan reads {missing[0]!r}, which is nowhere")
        constants = {name: nodes[name] for name in read if isinstance(nodes[name], _KNOWN)}
        given = tuple(name for name in read if name not in constants)
        return cls(given, tuple(nodes[name] for name in given), constants)

    def params(self) -> list[relax.Var]:
        """Return a variable for each of the values."""
        pairs = zip(self.names, self.values, strict=True)
        return [relax.Var(name, value.ty) for name, value in pairs]

    def given(self, params: Sequence[relax.Var]) -> dict[str, Expr]:
        """Return all of it by name, with variables in the place of values."""
        return {**self.constants, **dict(zip(self.names, params, strict=True))}


@dataclass(frozen=True, slots=True)
class ControlSite:
    """A node that is converted, and where."""

    builder: BlockBuilder
    """The builder of the function that it stands in."""
    inputs: Inputs
    attributes: Attributes
    nodes: Mapping[str, Expr]
    """All values of the function so far, by their names in the model."""
    opset: int

    @property
    def name(self) -> str:
        """The name of the node."""
        return operand_facts.read_node_name(self.attributes)

    @property
    def outputs(self) -> int:
        """How many outputs it has."""
        return int(self.attributes["tvm_custom"]["num_outputs"])


class BodyFunctions:
    """The private functions of one module that is imported."""

    def __init__(self) -> None:
        self._root: BlockBuilder
        self._inside = False

    def within(self, builder: BlockBuilder) -> None:
        """Say which builder a converter was called with; the first one has the module."""
        if not self._inside:
            self._root = builder

    def add(
        self,
        name: str,
        params: Sequence[relax.Var],
        emit: Callable[[BlockBuilder], Expr],
        *,
        pure: bool,
    ) -> GlobalVar:
        """Add a function and return its GlobalVar.

        `emit` is given a builder and returns the result; `pure` puts what it emits into one
        dataflow block.
        """
        builder = relax.BlockBuilder()
        return self._add_function(builder, name, params, lambda: emit(builder), pure=pure)

    def mark(self, function: GlobalVar, attribute: str) -> None:
        """Give a function an attribute."""
        marked = self._root.get()[function].with_attr(attribute, 1)
        self._root.update_func(function, marked)

    def body(
        self,
        graph: GraphProto,
        params: Sequence[relax.Var],
        given: Mapping[str, Expr],
        opset: int,
        results: Results = lambda _, values: values,
    ) -> GlobalVar:
        """Add the function of a body and return its GlobalVar.

        `given` are the inputs of the body and what it reads from around it, by name: parameters
        and known values. `results` may add to what the body computes. Raises ModelError where
        that has a shape which is not known.
        """
        importer = onnx_frontend.ONNXGraphImporter({}, "float32", sanitize=False)
        importer.opset = opset

        def emit() -> Expr:
            importer._nodes.update(given)
            for value in graph.input:
                dims = value.type.tensor_type.shape.dim
                if len(dims) == 1 and given[value.name].ty.ndim == 0:
                    one = relax.op.reshape(given[value.name], (1,))
                    importer._nodes[value.name] = importer.bb.normalize(one)
            importer._construct_nodes(graph)
            computed = [importer._nodes[value.name] for value in graph.output]
            for value, made in zip(graph.output, computed, strict=True):
                operand_facts.require_type_shape(made.ty, f"result {value.name!r} of a body")
            return relax.Tuple(results(importer.bb, computed))

        return self._add_function(importer.bb, graph.name or "body", params, emit, pure=True)

    def _add_function(
        self,
        builder: BlockBuilder,
        name: str,
        params: Sequence[relax.Var],
        emit: Callable[[], Expr],
        *,
        pure: bool,
    ) -> GlobalVar:
        before, self._inside = self._inside, True
        try:
            with builder.function("body", list(params), private=True):
                if pure:
                    with builder.dataflow():
                        result: Expr = builder.emit_output(emit())
                else:
                    result = emit()
                builder.emit_func_output(result)
        finally:
            self._inside = before
        return self._root.add_func(self._move_functions(builder.get()), _make_identifier(name))

    def _move_functions(self, module: IRModule) -> relax.Function:
        """Return the body, what its converters wrote in loops being part of the whole module."""
        moved = {
            variable: self._root.add_func(function, variable.name_hint)
            for variable, function in module.functions_items()
            if isinstance(function, tirx.PrimFunc)
        }
        if not moved:
            return module["body"]
        return tvm_ffi.structural_map(
            module["body"], (GlobalVar, lambda variable: moved.get(variable, variable))
        )


def describe_type(kind: Type) -> str:
    """Return a type of a tensor in words."""
    return f"{kind.dtype} {[int(dim) for dim in kind.shape.values]}"


def make_scalar(builder: BlockBuilder, value: Expr, dtype: str) -> Expr:
    """Return a number or a condition without dimensions."""
    if operand_facts.require_type_shape(value.ty, "a condition or a number of rounds"):
        value = builder.normalize(relax.op.reshape(value, ()))
    if str(value.ty.dtype) != dtype:
        value = builder.normalize(relax.op.astype(value, dtype))
    return value


def _make_identifier(name: str) -> str:
    """Return a name that a symbol of a library may have."""
    kept = "".join(c if c.isascii() and (c.isalnum() or c == "_") else "_" for c in name)[:60]
    return f"body_{kept}"
