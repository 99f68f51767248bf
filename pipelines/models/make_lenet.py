"""Make LeNet, forward and backward, as TVMScript: python pipelines/models/make_lenet.py [FOLDER].

Each compute of `lenet.py` and of its gradients is a function, and Relax calls them one by one. So
`lower` may fuse them, and each fused function is a task.
"""

# ruff: noqa: INP001  a script

import sys
from pathlib import Path
from typing import Any

from lenet import lenet
from tvm import relax, te, tirx

import autopipe
from autopipe.compiler.gradient.expressions import (
    find_read_tensor,
    list_operands,
    rewrite_expression,
    substitute_variables,
)

BATCH = 64

HEADER = '''"""LeNet-5, forward and backward, for 64 images, by `models/make_lenet.py`.

Images, parts of each class, and ten weights; the loss of each image, and the gradients of its sum.
"""

from tvm.script import ir as I
from tvm.script import relax as R
from tvm.script import tirx as T

'''


def computes(outputs: list[te.Tensor]) -> list[te.Tensor]:
    """Return all that is computed, each behind what it reads."""
    found: dict[Any, te.Tensor] = {}

    def visit(tensor: te.Tensor) -> None:
        for source in tensor.op.input_tensors:
            visit(source)
        if isinstance(tensor.op, te.ComputeOp):
            found.setdefault(tensor.op, tensor)

    for output in outputs:
        visit(output)
    return list(found.values())


def alone(tensor: te.Tensor) -> tirx.PrimFunc:
    """Return one compute as a function of what it reads."""
    read = list(tensor.op.input_tensors)
    given = [te.placeholder(one.shape, str(one.dtype), f"in{at}") for at, one in enumerate(read)]

    def taken(part: Any) -> Any:  # noqa: ANN401 - TVM's expressions
        source = find_read_tensor(part)
        if source is None:
            return None
        (at,) = (at for at, one in enumerate(read) if one.same_as(source))
        return given[at](*(rewrite_expression(index, taken) for index in list_operands(part)))

    def value(*at: Any) -> Any:  # noqa: ANN401 - TVM's expressions
        names = {axis.var: here for axis, here in zip(tensor.op.axis, at, strict=True)}
        (body,) = tensor.op.body
        if not isinstance(body, tirx.Reduce):
            return substitute_variables(rewrite_expression(body, taken), names)
        axes = [te.reduce_axis(axis.dom, axis.var.name) for axis in body.axis]
        names |= {old.var: new.var for old, new in zip(body.axis, axes, strict=True)}
        reduce = te.max if isinstance(body.combiner.result[0], tirx.Max) else te.sum
        return reduce(
            substitute_variables(rewrite_expression(body.source[0], taken), names), axis=axes
        )

    out = te.compute(tensor.shape, value, name="out")
    return te.create_prim_func([*given, out])


def module(batch: int) -> Any:  # noqa: ANN401 - TVM's module
    """Return LeNet with its gradients as a Relax module."""
    net = lenet(batch)
    outputs = [net.loss, *autopipe.gradient(net.loss, net.weights)]
    builder = relax.BlockBuilder()
    params = {
        one.op: relax.Var(one.op.name, relax.TensorType(one.shape, str(one.dtype)))
        for one in net.inputs
    }
    known: dict[Any, Any] = dict(params)
    with builder.function("main", list(params.values()), attrs={"num_input": len(params)}):
        with builder.dataflow():
            for tensor in computes(outputs):
                function = builder.add_func(alone(tensor), tensor.op.name)
                given = [known[one.op] for one in tensor.op.input_tensors]
                kind = relax.TensorType(tensor.shape, str(tensor.dtype))
                known[tensor.op] = builder.emit(relax.call_tir(function, given, kind))
            found = builder.emit_output(relax.Tuple([known[one.op] for one in outputs]))
        builder.emit_func_output(found)
    return builder.get()


def main() -> None:
    """Write the source."""
    folder = Path(sys.argv[1]) if sys.argv[1:] else Path(__file__).parents[1] / "tasks"
    text = module(BATCH).script(show_meta=False)
    body = text[text.index("@I.ir_module") :].rstrip()
    (folder / "lenet.py").write_text(f"{HEADER}\n{body}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
