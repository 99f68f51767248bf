"""Equal types are written once, and the module that is read is the one that was written."""

import json
from collections import Counter

import pytest
import tvm
import tvm_ffi

from autopipe.compiler import module_io

CONVOLUTIONS = """
@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor((1, 8, 6, 6), "float32"), w: R.Tensor((8, 8, 3, 3), "float32"),
             v: R.Tensor((8, 8, 3, 3), "float32")):
        with R.dataflow():
            a = R.nn.conv2d(x, w, padding=[1, 1, 1, 1])
            b = R.nn.conv2d(a, v, padding=[1, 1, 1, 1])
            c = R.add(b, R.const([1.0, 2.0, 3.0, 4.0, 5.0, 6.0], "float32"))
            R.output(c)
        return c
"""
BRANCHES = """
@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor(("n", 4), "float32"), flag: R.Tensor((), "bool")):
        cls = Module
        s = R.split(x, 2, axis=1)
        if flag:
            y = cls.twice(x)
        else:
            y = R.exp(x)
        z = (y, s)
        return z

    @R.function
    def twice(x: R.Tensor(("m", 4), "float32")):
        y = R.add(x, x)
        return y
"""


def saved(text, tmp_path):
    given = tvm.script.from_source(text)
    path = tmp_path / "module.json"
    module_io.save_module(given, path)
    return given, module_io.load_module(path), json.loads(path.read_text())["nodes"]


@pytest.mark.parametrize("text", [CONVOLUTIONS, BRANCHES])
def test_the_module_that_is_read_is_equal(tmp_path, text):
    given, found, _ = saved(text, tmp_path)
    assert tvm_ffi.structural_equal(given, found)
    assert given.script(show_meta=True) == found.script(show_meta=True)
    tvm.relax.analysis.well_formed(found)  # raises


def test_equal_types_and_attributes_are_written_once(tmp_path):
    _, _, nodes = saved(CONVOLUTIONS, tmp_path)
    counts = Counter(node["type"] for node in nodes)
    assert counts["relax.TensorType"] == 3  # of images, of kernels, and of the constant
    assert counts["relax.attrs.Conv2DAttrs"] == 1


def test_a_constant_that_is_read_twice_stays_one(tmp_path):
    value = tvm.relax.const([1.0, 2.0])
    builder = tvm.relax.BlockBuilder()
    x = tvm.relax.Var("x", tvm.relax.TensorType((2,), "float32"))
    with builder.function("main", [x]):
        sums = tvm.relax.op.add(tvm.relax.op.add(x, value), value)
        builder.emit_func_output(builder.emit(sums))
    path = tmp_path / "module.json"
    module_io.save_module(builder.get(), path)
    nodes = json.loads(path.read_text())["nodes"]
    assert sum(node["type"].endswith("GenericConst") for node in nodes) == 1


def test_the_given_module_stays_as_it_is(tmp_path):
    given = tvm.script.from_source(CONVOLUTIONS)
    before = given.script(show_meta=True)
    module_io.save_module(given, tmp_path / "module.json")
    assert given.script(show_meta=True) == before


def test_an_equal_shape_operand_is_written_once(tmp_path):
    text = """
@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor((4, 6), "float32"), y: R.Tensor(("n", 2), "float32")):
        n = T.int64()
        a = R.reshape(x, R.shape([2, 12]))
        b = R.reshape(R.exp(x), R.shape([2, 12]))
        c = R.reshape(y, R.shape([2 * n]))
        d = R.reshape(R.exp(y), R.shape([2 * n]))
        return (a, b, c, d)
"""
    given, found, _ = saved(text, tmp_path)
    assert tvm_ffi.structural_equal(given, found)
    calls = [each.value for each in found["main"].body.blocks[0].bindings]
    shapes = [call.args[1] for call in calls if call.op.name == "relax.reshape"]
    assert shapes[0].same_as(shapes[1])
    assert shapes[2].same_as(shapes[3])
    assert not shapes[0].same_as(shapes[2])
