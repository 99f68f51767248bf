"""Functions scheduled at once: nothing is measured, no process is started."""

import json

import numpy as np
import pytest
import tvm_ffi
from tvm import te, topi

import autopipe
from autopipe.errors import ConfigError, ModelError, StageError
from autopipe.schedules.analysis.classes import BlockClass
from tests.schedules.tensors import matmul


@pytest.fixture(autouse=True)
def no_process(monkeypatch):
    def refused(*_given, **_options):
        raise AssertionError("a process is started")

    monkeypatch.setattr("subprocess.Popen.__init__", refused)
    monkeypatch.setattr("os.fork", refused)


def product():
    x, y = (te.placeholder((20, 20), name=name) for name in "xy")
    k = te.reduce_axis((0, 20), name="k")
    return [x, y, te.compute((20, 20), lambda i, j: te.sum(x[i, k] * y[k, j], axis=k), name="z")]


def test_tensors_become_a_function_that_can_be_called():
    found = autopipe.auto_schedule(product())
    assert (found.engine, found.seconds, found.contenders) == ("static", None, ())
    assert json.loads(found.schedule)["template"] == "contraction"
    left, right = (np.random.default_rng(i).random((20, 20), "float32") for i in (0, 1))
    (result,) = found(left, right)
    np.testing.assert_allclose(result, left @ right, rtol=1e-5)
    with pytest.raises(ModelError, match=r"takes float32\[20x20\], float32\[20x20\]; these are"):
        found(left)
    assert str(found).splitlines() == [
        "z: complex reduction, 20x20 over 20", "",
        "static on direct: template contraction, not measured",
    ]  # fmt: skip


def test_what_any_build_of_tvm_compiles_has_elementary_functions_as_arithmetic():
    x = te.placeholder((4, 33), name="x")
    fast = autopipe.auto_schedule([x, topi.erf(x)])
    exact = autopipe.auto_schedule([x, topi.erf(x)], fast_algorithms=False)
    assert "T.erf" not in fast.module.script()
    assert "T.erf" in exact.module.script()


def test_a_schedule_is_saved_without_the_function_and_fits_no_other(tmp_path):
    found = autopipe.auto_schedule(product(), target=autopipe.hardware(num_cores=3, l2=1 << 20))
    found.save(tmp_path / "schedule.json")
    again = autopipe.load_scheduled(tmp_path / "schedule.json", product())
    assert tvm_ffi.structural_equal(again.module, found.module)
    assert (again.target, again.target.num_cores, again.target.hardware.l2) == (
        found.target, 3, 1 << 20,
    )  # fmt: skip
    with pytest.raises(ModelError, match="the schedule of another function"):
        autopipe.load_scheduled(tmp_path / "schedule.json", matmul())


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"format": 2}, "format: Input should be 1"),
        ({"target": {"kind": "metal"}}, "kind"),
        ({"schedule": "import os"}, "schedule|JSON|Expecting"),
        ({"schedule": '{"template": "contraction", "version": 2, "knobs": {}}'}, "no setting"),
        ({"contenders": [{"name": 1}]}, "contenders"),
        ({"implementation": "winograd9"}, "no implementation"),
        ({"seconds": "soon"}, "seconds: Input should be"),
    ],
)  # fmt: skip
def test_files_that_another_wrote(tmp_path, change, error):
    file = tmp_path / "schedule.json"
    autopipe.auto_schedule(product()).save(file)
    file.write_text(json.dumps({**json.loads(file.read_text()), **change}))
    with pytest.raises((ModelError, StageError, ConfigError), match=error):
        autopipe.load_scheduled(file, product())
    file.write_text("[]")
    with pytest.raises(ModelError, match="no schedule that autopipe saved"):
        autopipe.load_scheduled(file, product())


def test_a_file_that_can_not_be_read_is_said(tmp_path):
    for file in (tmp_path, tmp_path / "missing"):
        with pytest.raises(ModelError, match=r"no schedule that autopipe saved: (Is|No) "):
            autopipe.load_scheduled(file, product())


def _scan(x):
    state = te.placeholder((4,), name="state")
    first = te.compute((1,), lambda _: x[0])
    return te.scan(first, te.compute((4,), lambda t: state[t - 1] + x[t]), state)


def test_what_is_no_compute_is_said():
    x = te.placeholder((4,), name="x")
    y = te.compute((4,), lambda i: x[i] + 1, name="y")
    less = te.placeholder((-1,), name="less")
    for compute, error in (
        ([x], "placeholders only"),
        ([], "a PrimFunc, a module with one"),
        (autopipe.auto_schedule(product()).module, "scheduled already"),
        ([x, _scan(x)], "T.axis.scan"),
        ([te.compute((4,), lambda i: x[i] + 1)], "x is read and not among them"),
        ([x, x, y], "x is passed twice"),
        ([x, y, y], "y is passed twice"),
        ([y, x], "input x comes after a result"),  # a call would have passed it in its place
        ([x, less, y], "a dimension is negative"),
    ):
        with pytest.raises(ModelError, match=error):
            autopipe.auto_schedule(compute)


def test_a_function_of_a_single_element_is_scheduled_without_a_complaint(caplog):
    x = te.placeholder((1,), name="x")
    found = autopipe.auto_schedule([x, te.compute((1,), lambda i: x[i] * 2.0)])
    np.testing.assert_array_equal(found(np.ones(1, "float32")), [[2.0]])
    assert not caplog.records


def test_options_of_measuring_are_checked_where_nothing_is_measured():
    with pytest.raises(ConfigError, match="engines"):
        autopipe.auto_schedule(product(), engines="ansr")


def test_hardware_is_this_machine_but_for_what_is_stated():
    here = autopipe.hardware()
    assert here.mcpu != "native"
    assert here.hardware.l1
    stated = autopipe.hardware(vector_bits=128, mcpu="znver4")
    assert (stated.mcpu, stated.hardware.vector_bits) == ("znver4", 128)
    with pytest.raises(ConfigError, match="cores: Extra inputs"):
        autopipe.hardware(cores=3)


def test_a_function_for_a_gpu_is_made_without_one():
    found = autopipe.auto_schedule(product(), target=autopipe.hardware(kind="cuda", arch="sm_80"))
    assert "threadIdx.x" in found.module.script()
    with pytest.raises(ModelError, match="a function for cuda is not called here"):
        found()


def test_classes_of_blocks():
    x = te.placeholder((1, 4, 10, 10), name="x")
    w = te.placeholder((8, 4, 3, 3), name="w")
    conv = topi.nn.conv2d_nchw(x, w, 1, 1, 1)
    soft = topi.sum(topi.nn.relu(conv), axis=1)
    kinds = {block.name: block.kind for block in autopipe.auto_schedule([x, w, soft]).blocks}
    assert list(kinds.values()) == [
        BlockClass.LOCATION_TUNABLE, BlockClass.COMPLEX_REDUCTION, BlockClass.LOCATION_TUNABLE,
        BlockClass.SIMPLE_REDUCTION,
    ]  # fmt: skip
    y = te.placeholder((5,), name="y")
    (only,) = autopipe.auto_schedule([y, topi.exp(y)]).blocks
    assert str(only) == "compute: direct compute, 5"
