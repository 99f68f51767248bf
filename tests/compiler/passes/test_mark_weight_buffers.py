"""Weights are marked as TVM's pass does it, to equal modules."""

import pytest
import tvm
import tvm_ffi
from tvm.relax import transform

from autopipe.compiler.passes.mark_weight_buffers import mark_weight_buffers

HEAD = """
@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor((4, 4), "float32"), w: R.Tensor((4, 4), "float32"),
             v: R.Tensor((4, 4), "float32")):
        R.func_attr({"num_input": 1})
        with R.dataflow():
"""
SHARED = """
a = R.matmul(x, w)
b = R.matmul(a, v)
c = R.matmul(w, b)
d = R.matmul(b, c)
z = R.add(d, R.const([1.0, 2.0, 3.0, 4.0], "float32"))
"""
WITHOUT_WEIGHTS = "z = R.exp(x)"


def legalized(body):
    lines = [*body.strip().splitlines(), "R.output(z)"]
    text = HEAD + "".join(f"            {line}\n" for line in lines) + "        return z\n"
    return transform.LegalizeOps()(tvm.script.from_source(text))


@pytest.mark.parametrize("body", [SHARED, WITHOUT_WEIGHTS])
def test_modules_equal_those_of_tvm(body):
    module = legalized(body)
    given = module.script(show_meta=True)
    drop = transform.DeadCodeElimination()
    made = drop(mark_weight_buffers(module))
    wanted = drop(transform.AttachAttrLayoutFreeBuffers()(module))
    assert tvm_ffi.structural_equal(made, wanted)
    assert made.script(show_meta=True) == wanted.script(show_meta=True)
    assert module.script(show_meta=True) == given


def test_calls_of_one_kernel_with_other_weights_call_other_kernels():
    marked = transform.DeadCodeElimination()(mark_weight_buffers(legalized(SHARED)))
    places = sorted(
        [int(at) for at in function.attrs["layout_free_buffers"]]
        for _, function in marked.functions_items()
        if "layout_free_buffers" in (function.attrs or {})
    )
    assert places == [[], [0], [1], [1]]  # of matmul thrice, and of add


def test_in_a_function_without_inputs_that_are_counted_constants_alone_are_weights():
    module = legalized(SHARED)
    entry = module.get_global_var("main")
    module.update_func(entry, module[entry].without_attr("num_input"))
    marked = transform.DeadCodeElimination()(mark_weight_buffers(module))
    wanted = transform.DeadCodeElimination()(transform.AttachAttrLayoutFreeBuffers()(module))
    assert marked.script(show_meta=True) == wanted.script(show_meta=True)
