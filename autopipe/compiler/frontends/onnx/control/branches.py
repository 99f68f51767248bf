"""If as a private function, which calls that of the branch."""

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
    """Return the outputs of an If. Raises ModelError where its branches have different ones."""
    builder, name = site.builder, site.name
    graphs = [site.attributes["then_branch"], site.attributes["else_branch"]]
    around = Around.of(graphs, site.nodes)
    condition = make_scalar(builder, site.inputs[0], "bool")
    called = []
    for which, graph in zip(("then", "else"), graphs, strict=True):
        params = around.params()
        try:
            called.append(functions.body(graph, params, around.given(params), site.opset))
        except ModelError as error:
            raise ModelError(
                f"the {which} branch of If {name!r} can not be compiled for these sizes: {error}; "
                "if an input decides that it is never taken, say so by model.inputs.NAME.value"
            ) from error
    then, other = (branch.ty.ret.fields for branch in called)
    for output, (one, two) in enumerate(zip(then, other, strict=False)):
        what = f"output {output} of If {name!r}"
        operand_facts.require_type_shape(one, what)
        if len(then) != len(other) or not tvm_ffi.structural_equal(one, two):
            raise ModelError(
                f"{what} is {describe_type(one)} in one branch and {describe_type(two)} in the "
                "other; a model whose shapes depend on data can not be compiled"
            )
    whole = [relax.Var("condition", condition.ty), *around.params()]

    def choose(inner: BlockBuilder) -> Expr:
        calls = [relax.Call(branch, whole[1:]) for branch in called]
        sequences = [relax.SeqExpr([], call) for call in calls]
        return inner.emit(relax.If(whole[0], *sequences))

    chosen = functions.add(f"if_{name}", whole, choose, pure=False)
    result = builder.emit(relax.Call(chosen, [condition, *around.values]))
    parts = [builder.emit(relax.TupleGetItem(result, at)) for at in range(len(then))]
    return parts[0] if len(parts) == 1 else relax.Tuple(parts)
