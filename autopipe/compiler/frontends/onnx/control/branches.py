"""Convert If to a private function that calls one function of each branch."""

import tvm_ffi
from tvm import relax
from tvm.ir import Expr

from autopipe.compiler.frontends.onnx.control.functions import (
    Around,
    BodyFunctions,
    ControlSite,
    describe_type,
    make_scalar,
)
from autopipe.compiler.frontends.onnx.conversion import operand_facts
from autopipe.compiler.frontends.onnx.conversion.converter_types import BlockBuilder
from autopipe.errors import ModelError


def convert_if(functions: BodyFunctions, site: ControlSite) -> Expr:
    """Convert an If. Raises ModelError if its branches return different types."""
    builder, name = site.builder, site.name
    graphs = [site.attributes["then_branch"], site.attributes["else_branch"]]
    surroundings = Around.of(graphs, site.nodes)
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
