import pytest
import tvm
import tvm_ffi
from tvm import te

from autopipe.compiler.module_io import save_module
from autopipe.compiler.tasks import make_workload
from autopipe.compiler.tvmscript_text import format_workloads


def module(block="scaled", note=None):
    x = te.placeholder((16,), "float32", name="x")
    out = te.compute((16,), lambda i: x[i] * tvm.tirx.const(1 / 3, "float32"), name=block)
    function = te.create_prim_func([x, out])
    return make_workload(function.with_attr("note", note) if note else function).module


def script(one, folder):
    save_module(one, folder / "0.json")
    return format_workloads({"folder": str(folder), "workloads": ["0"]}, print)["0"]


def test_a_script_gives_the_same_module_again(tmp_path):
    one = module()
    found = script(one, tmp_path)
    assert found["exact"] is True
    assert tvm_ffi.structural_equal(tvm.script.from_source(found["tir"]), one)


def test_what_the_text_leaves_out_is_not_exact(tmp_path):
    """TVM keeps a string of several lines beside the text, where `from_source` does not look."""
    assert script(module(note="one\ntwo"), tmp_path)["exact"] is False


@pytest.mark.parametrize("text", ["{}", "Module = 1", "class"])
def test_what_is_another_module_is_not_exact(tmp_path, monkeypatch, text):
    text = text.format(module().script()).replace("0.333", "0.334")
    monkeypatch.setattr(tvm.IRModule, "script", lambda _, show_meta: text)
    assert script(module(), tmp_path) == {"tir": text, "exact": False}


def test_more_than_the_module_is_not_exact(tmp_path, monkeypatch):
    text = f"{module().script()}\nimport os\n"
    monkeypatch.setattr(tvm.IRModule, "script", lambda _, show_meta: text)
    assert script(module(), tmp_path)["exact"] is False


def test_names_do_not_become_code(tmp_path):
    found = script(module('x"\nimport os\nos.abort()\n"'), tmp_path)
    assert "\nimport os" not in found["tir"]
    assert found["exact"] is True
