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
from autopipe.compiler.frontends.onnx.conversion.converter_types import BlockBuilder
from autopipe.errors import ModelError

# ruff: noqa: SLF001  TVM's importer has no public interface

_KNOWN = (GenericConst, relax.ShapeExpr, tirx.IntImm)
"""Types of captured values that are constants in a body instead of parameters."""


Results = Callable[[BlockBuilder, list[Expr]], list[Expr]]
"""Transforms the results of a body: (builder of the body, its results)."""


@dataclass(frozen=True, slots=True)
class Around:
    """The values that a body captures from the surrounding graph."""

    names: tuple[str, ...]
    """Names of the values that are computed at run time."""
    values: tuple[Expr, ...]
    constants: Mapping[str, Expr]
    """Constant values by name."""

    @classmethod
    def of(cls, graphs: Sequence[GraphProto], nodes: Mapping[str, Expr]) -> "Around":
        """Find the captured values of bodies among the values of the surrounding graph."""
        captured_names = dict.fromkeys(name for graph in graphs for name in list_captured(graph))
        missing = [name for name in captured_names if name not in nodes]
        if missing:
            raise ModelError(f"a body of If, Loop or Scan reads {missing[0]!r}, which is nowhere")
        constants = {
            name: nodes[name] for name in captured_names if isinstance(nodes[name], _KNOWN)
        }
        runtime_names = tuple(name for name in captured_names if name not in constants)
        return cls(runtime_names, tuple(nodes[name] for name in runtime_names), constants)

    def params(self) -> list[relax.Var]:
        """Create a variable for each run-time value."""
        pairs = zip(self.names, self.values, strict=True)
        return [relax.Var(name, value.ty) for name, value in pairs]

    def given(self, params: Sequence[relax.Var]) -> dict[str, Expr]:
        """Map all captured names to constants or the given variables."""
        return {**self.constants, **dict(zip(self.names, params, strict=True))}


class BodyFunctions:
    """The private functions of control flow bodies in the imported module."""

    def __init__(self) -> None:
        self._root: BlockBuilder
        self._inside = False

    def within(self, builder: BlockBuilder) -> None:
        """Register a converter's builder; the outermost one owns the module."""
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

        `emit` takes a builder and returns the result; with `pure` its bindings are one dataflow
        block.
        """
        builder = relax.BlockBuilder()
        return self._add_function(builder, name, params, lambda: emit(builder), pure=pure)

    def mark(self, function: GlobalVar, attribute: str) -> None:
        """Set an attribute of a function to 1."""
        new_function = self._root.get()[function].with_attr(attribute, 1)
        self._root.update_func(function, new_function)

    def body(
        self,
        graph: GraphProto,
        params: Sequence[relax.Var],
        bindings: Mapping[str, Expr],
        opset: int,
        results: Results = lambda _, values: values,
    ) -> GlobalVar:
        """Add the function of a body and return its GlobalVar.

        `bindings` are the inputs and captured values of the body by name: parameters and
        constants. `results` may transform the body's outputs. Raises ModelError for an output of
        unknown shape.
        """
        importer = onnx_frontend.ONNXGraphImporter({}, "float32", sanitize=False)
        importer.opset = opset

        def emit() -> Expr:
            importer._nodes.update(bindings)
            for value in graph.input:
                dims = value.type.tensor_type.shape.dim
                if len(dims) == 1 and bindings[value.name].ty.ndim == 0:
                    vector = relax.op.reshape(bindings[value.name], (1,))
                    importer._nodes[value.name] = importer.bb.normalize(vector)
            importer._construct_nodes(graph)
            outputs = [importer._nodes[value.name] for value in graph.output]
            for value, result in zip(graph.output, outputs, strict=True):
                operand_facts.require_type_shape(result.ty, f"result {value.name!r} of a body")
            return relax.Tuple(results(importer.bb, outputs))

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
        """Return the body with the PrimFuncs of its converters moved to the root module."""
        replacements = {
            variable: self._root.add_func(function, variable.name_hint)
            for variable, function in module.functions_items()
            if isinstance(function, tirx.PrimFunc)
        }
        if not replacements:
            return module["body"]
        return tvm_ffi.structural_map(
            module["body"], (GlobalVar, lambda variable: replacements.get(variable, variable))
        )


def describe_type(kind: Type) -> str:
    """Format a tensor type for messages."""
    return f"{kind.dtype} {[int(dim) for dim in kind.shape.values]}"


def make_scalar(builder: BlockBuilder, value: Expr, dtype: str) -> Expr:
    """Reshape a number or a condition to rank 0 and cast it."""
    if operand_facts.require_type_shape(value.ty, "a condition or a number of rounds"):
        value = builder.normalize(relax.op.reshape(value, ()))
    if str(value.ty.dtype) != dtype:
        value = builder.normalize(relax.op.astype(value, dtype))
    return value


def _make_identifier(name: str) -> str:
    """Convert a name to a valid symbol name."""
    safe_name = "".join(c if c.isascii() and (c.isalnum() or c == "_") else "_" for c in name)[:60]
    return f"body_{safe_name}"
