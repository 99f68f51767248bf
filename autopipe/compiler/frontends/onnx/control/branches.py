"""Convert If to a private function that calls one function of each branch."""

import tvm_ffi
from tvm import relax
from tvm.ir import Expr
from tvm.relax.frontend.onnx import onnx_frontend

from autopipe.compiler.frontends.onnx.control.functions import Around, describe_type, make_scalar
from autopipe.compiler.frontends.onnx.conversion import operand_facts
from autopipe.compiler.frontends.onnx.conversion.converter_types import BlockBuilder
from autopipe.compiler.frontends.onnx.conversion.site import NodeSite
from autopipe.errors import ModelError

# ruff: noqa: SLF001  TVM's importer has no public interface


def convert_if(site: NodeSite) -> Expr:
    """Convert an If, or only the branch that it takes at all sizes.

    Raises ModelError if its branches return different types.
    """
    if (taken := _convert_taken_branch(site)) is not None:
        return taken
    builder, functions, name = site.bb, site.functions, site.name
    graphs = [site.attr["then_branch"], site.attr["else_branch"]]
    surroundings = Around.of(graphs, site.params[0])
    condition = make_scalar(builder, site.inputs[0], "bool")
    branches = []
    for which, graph in zip(("then", "else"), graphs, strict=True):
        params = surroundings.params()
        try:
            branches.append(functions.body(graph, params, surroundings.given(params), site.opset))
        except ModelError as error:
            raise ModelError(
                f"the {which} branch of If {name!r} cannot be compiled for these sizes: {error}; "
                "if an input decides that it is never taken, say so by model.inputs.NAME.value"
            ) from error
    then_types, else_types = (branch.ty.ret.fields for branch in branches)
    for output, (then_type, else_type) in enumerate(zip(then_types, else_types, strict=False)):
        label = f"output {output} of If {name!r}"
        operand_facts.require_type_shape(then_type, label)
        if len(then_types) != len(else_types) or not tvm_ffi.structural_equal(then_type, else_type):
            raise ModelError(
                f"{label} is {describe_type(then_type)} in one branch and "
                f"{describe_type(else_type)} in the other; a model whose shapes depend on data "
                "cannot be compiled"
            )
    parameters = [relax.Var("condition", condition.ty), *surroundings.params()]

    def choose(inner: BlockBuilder) -> Expr:
        calls = [relax.Call(branch, parameters[1:]) for branch in branches]
        sequences = [relax.SeqExpr([], call) for call in calls]
        return inner.emit(relax.If(parameters[0], *sequences))

    function = functions.add(f"if_{name}", parameters, choose, pure=False)
    result = builder.emit(relax.Call(function, [condition, *surroundings.values]))
    parts = [builder.emit(relax.TupleGetItem(result, at)) for at in range(len(then_types))]
    return parts[0] if len(parts) == 1 else relax.Tuple(parts)


def _convert_taken_branch(site: NodeSite) -> Expr | None:
    """Convert the branch that an If takes at all sizes; None if that is unknown.

    Example: a model exported for any number of steps tests `Shape(x)[1] == 1` to squeeze an axis,
    which the range of the dimension may decide.
    """
    condition = site.extents.of(site.inputs[0], site.params)
    if condition is None or condition.size != 1 or not isinstance(condition.flat[0], bool):
        return None
    graph = site.attr["then_branch" if condition.flat[0] else "else_branch"]
    importer = onnx_frontend.ONNXGraphImporter({}, "float32", sanitize=False)
    importer.bb, importer.opset = site.bb, site.opset
    importer._nodes.update(site.params[0])
    importer._construct_nodes(graph)
    outputs = [importer._nodes[output.name] for output in graph.output]
    return outputs[0] if len(outputs) == 1 else relax.Tuple(outputs)
