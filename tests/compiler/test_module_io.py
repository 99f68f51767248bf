import json

import pytest
import tvm
import tvm_ffi
from tvm import te

from autopipe.compiler import module_io


def module():
    x = te.placeholder((4, 8), "float32", "x")
    return tvm.IRModule(
        {"main": te.create_prim_func([x, te.compute(x.shape, lambda *i: x(*i) * 2)])}
    )


def test_what_was_written_here_is_read_as_it_was():
    found = module_io.parse_json(tvm.ir.save_json(module()))
    assert tvm_ffi.structural_equal(found, module())


def test_text_of_an_older_tvm_is_still_understood():
    document = json.loads(tvm.ir.save_json(module()))
    document["metadata"]["tvm_version"] = "0.26.0"
    older = [node for node in document["nodes"] if node["type"] == "ir.Var"]
    assert older
    for node in older:
        node["type"] = "tirx.Var"
    found = module_io.parse_json(json.dumps(document))
    assert tvm_ffi.structural_equal(found, module())


@pytest.mark.parametrize("text", ["", "[", '{"nodes": []}', "{}"])
def test_what_is_no_module_is_refused(text):
    with pytest.raises((ValueError, RuntimeError, KeyError)):
        module_io.parse_json(text)
