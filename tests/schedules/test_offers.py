import tvm
from tvm import te

from autopipe.compiler.module_io import save_module
from autopipe.schedules.offers import find_templates
from tests.schedules.tasks import task
from tests.schedules.templates.test_winograd import convolution
from tests.support import here

TARGET = here.facts()


def offered(module, folder, *, fast=True):
    save_module(module, folder / "module.json")
    argument = {
        "task": task(0).model_dump(mode="json"), "module": str(folder / "module.json"),
        "target": TARGET, "fast_algorithms": fast,
    }  # fmt: skip
    return find_templates(argument, print)


def test_each_implementation_has_its_template(tmp_path):
    found = offered(convolution(28, 28, inputs=32, outputs=64), tmp_path)
    assert found["direct"] == "contraction"
    assert found["winograd4"] == "winograd"


def test_what_rounds_differently_is_offered_only_if_that_is_allowed(tmp_path):
    assert "winograd4" not in offered(
        convolution(28, 28, inputs=32, outputs=64), tmp_path, fast=False
    )
    assert "winograd4" not in offered(
        convolution(28, 28, inputs=32, outputs=64, kernel=1, pad=0), tmp_path
    )


def test_what_no_template_serves(tmp_path):
    x = te.placeholder((8,), "float32", name="x")
    out = te.extern((8,), [x], lambda ins, outs: tvm.tirx.call_packed("f", ins[0], outs[0]))
    module = tvm.IRModule({"main": te.create_prim_func([x, out])})
    assert offered(module, tmp_path) == {"direct": None}
