"""Changes to TVM and Python: that they change nothing else, and that TVM still needs them."""

import inspect
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import tvm
import tvm_ffi
from tvm import relax, tirx
from tvm.relax.frontend.onnx import from_onnx, onnx_frontend
from tvm.s_tir import Schedule
from tvm.s_tir.schedule import _type_checker
from tvm.script import tirx as T  # noqa: N812 - as everywhere

from autopipe.compiler import patches
from tests.schedules.bad_schedules import doubled

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    "imports",
    ["import autopipe.compiler.import_tvm, autopipe.stages, autopipe.tuning.run",
     "from autopipe.compiler.library import runtime; runtime.load_with('none', None, None)"],
)  # fmt: skip
def test_importing_tvm_leaves_pytorch_out(tmp_path, imports):
    """What imports TVM forks children that may use a GPU, and PyTorch would ask CUDA for one."""
    mark = tmp_path / "imported"
    (tmp_path / "torch.py").write_text(f"open({str(mark)!r}, 'w').close()\n")
    paths = [str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])]
    code = f"""
try:
    {imports}
except AttributeError:  # there is nothing to load
    pass
import os, sys
assert "tvm_ffi" in sys.modules and not os.path.exists({str(mark)!r})
import torch  # whoever wants it may have it
"""
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, check=False, capture_output=True, text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert mark.exists()


def test_pytorch_that_is_there_stays(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", os)
    with patches.omit_torch():
        assert sys.modules["torch"] is os
    assert sys.modules["torch"] is os


_SAY = """
import json, sys
import {module}
modules = {{name: m for name, m in sys.modules.items() if name.startswith("tvm") and m}}
print(json.dumps({{name: sorted(vars(m)) for name, m in modules.items() if "ffi" in name}}))
"""


def run_python(code, **variables):
    """Return what a program prints, run in a Python of its own."""
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, check=True, capture_output=True, text=True,
        env={**os.environ, **variables},
    )  # fmt: skip
    return done.stdout


def test_every_function_of_tvm_is_there():
    named = [json.loads(run_python(_SAY.format(module=name)))
             for name in ("autopipe.compiler.import_tvm", "tvm")]  # fmt: skip
    assert sum(map(len, named[0].values())) > 1000
    assert named[0] == named[1]


def test_arguments_of_primitives_are_checked_as_before():
    patches.cache_type_hints()
    assert _type_checker._dispatcher.cache_info() is not None
    sch = Schedule(doubled())
    (block,) = sch.get_child_blocks(sch.get_sblock("root"))
    loop = sch.get_loops(block)[0]
    for _ in range(2):
        with pytest.raises(TypeError, match='"loop" has wrong type'):
            sch.split(3.5, [None, 2])  # type: ignore[arg-type]
    assert len(sch.split(loop, [None, 2])) == 2


def test_an_array_is_iterated_in_order():
    array = tvm_ffi.convert([1, "two", (3, 4)])
    assert [*array] == [1, "two", array[2]]
    assert [*tvm_ffi.convert([])] == []
    assert (5 in array, list(reversed(array))[2]) == (False, 1)


def test_arrays_still_check_each_place():
    code = "import inspect, tvm_ffi; print(inspect.getsource(tvm_ffi.Array.__iter__))"
    assert "yield self[i]" in run_python(code), "iterate_arrays can go"


def test_callbacks_are_still_analyzed_at_each_call():
    code = """
from tvm_ffi.structural import _callback_accepts_inplace_mode, _callback_type_to_type_index as find
print(hasattr(find, "cache_info"), "inspect" in _callback_accepts_inplace_mode.__code__.co_names)
"""
    assert run_python(code) == "False True\n", "cache_callbacks can go"


def test_a_callback_that_is_defined_anew_is_called_with_what_it_takes():
    patches.cache_callbacks()
    one = tirx.IntImm("int64", 1)
    for value in (2, 3):
        number = tirx.IntImm("int64", value)
        for callback in (lambda _, __: number, lambda _, __, mode: number, lambda *_: number):  # noqa: B023
            changed = tvm_ffi.structural_mutate(one, [(tirx.IntImm, callback)])
            assert int(changed) == value
    with pytest.raises(TypeError, match="must accept"):
        tvm_ffi.structural_mutate(one, [(tirx.IntImm, lambda node: node)])


def test_tvm_ffi_still_imports_pytorch(tmp_path):
    mark = tmp_path / "imported"
    (tmp_path / "torch.py").write_text(f"open({str(mark)!r}, 'w').close()\n")
    run_python("try:\n  import tvm_ffi\nexcept AttributeError: pass", PYTHONPATH=str(tmp_path))
    assert mark.exists(), "omit_torch can go"


def test_tvm_still_lists_its_functions_many_times():
    counted = """
from tvm_ffi import registry
times, original = [], registry.list_global_func_names
registry.list_global_func_names = lambda: times.append(1) or original()
import tvm
print(len(times))
"""
    assert int(run_python(counted)) > 20, "list_functions_once can go"


def test_tvm_still_registers_the_intrinsics_of_all_devices():
    package = Path(onnx_frontend.__file__).parents[3] / "s_tir" / "tensor_intrin"
    assert "cuda" in (package / "__init__.py").read_text(), "load_cpu_intrinsics can go"


def test_decorators_of_tvmscript_still_read_the_stack(monkeypatch):
    calls: list[int] = []
    original = inspect.stack

    def counted(context: int = 1) -> list[inspect.FrameInfo]:
        calls.append(context)
        return original(context)

    monkeypatch.setattr(inspect, "stack", counted)

    @T.prim_func
    def _nothing() -> None:
        T.evaluate(0)

    assert calls, "skip_call_stack can go"


def test_tvm_still_analyzes_type_hints_at_each_call():
    found = run_python(
        "from tvm.s_tir.schedule import _type_checker as checker\n"
        "print(hasattr(checker._dispatcher, 'cache_info'))"
    )
    assert found == "False\n", "cache_type_hints can go"


_KERNEL_OF_SIZES = """
from tvm import relax, te, tirx
names = [f"size{number}" for number in range(40)]
sizes = [tirx.Var(name, "int64") for name in names]
builder = relax.BlockBuilder()
data = relax.Var("data", relax.TensorType([2 * size for size in sizes], "float32"))
given = relax.Var("sizes", relax.ShapeType(sizes))
def copy(data):
    return te.compute(data.shape, lambda *at: data(*at), name="copied")
with builder.function("main", [data, given]):
    builder.emit_func_output(builder.emit_te(copy, data))
taken = [str(each.name) for each in builder.get()["copy"].params]
print(taken[1:-1] == names)
"""


def test_kernels_take_sizes_in_the_order_of_their_use():
    assert run_python(f"import autopipe.compiler.import_tvm\n{_KERNEL_OF_SIZES}") == "True\n"


def test_tvm_still_orders_sizes_by_their_addresses():
    assert run_python(_KERNEL_OF_SIZES) == "False\n", "order_size_variables can go"


def test_the_onnx_importer_still_takes_no_converters():
    assert callable(onnx_frontend._get_convert_map)
    named = " ".join(inspect.signature(from_onnx).parameters)
    assert "convert" not in named, "replace_converters can go"


def test_constant_folding_still_compiles_what_it_folds():
    folded = """
import numpy as np, tvm
from tvm import relax
calls = []
build = tvm.get_global_func("tirx.build")
tvm.register_global_func("tirx.build", lambda *a: calls.append(1) or build(*a), override=True)
builder = relax.BlockBuilder()
with builder.function("main", []):
    with builder.dataflow():
        one = relax.const(np.ones(4, "float32"))
        total = builder.emit_output(relax.op.add(one, one))
    builder.emit_func_output(total)
with tvm.target.Target({"kind": "llvm"}):
    relax.transform.FoldConstant()(relax.transform.LegalizeOps()(builder.get()))
print(len(calls))
"""
    assert int(run_python(folded)) > 0, "replace_build can go"


def test_variables_of_tensors_are_compared_by_identity_and_numbers_make_expressions():
    """It can go once TVM does not ask for the type of a variable first."""
    patches.compare_variables()
    x, other = (relax.Var("x", relax.TensorType((2,), "float32")) for _ in range(2))
    again = relax.Call(tvm.ir.Op.get("relax.exp"), [x]).args[0]
    assert again is not x
    assert again == x
    assert x != other
    assert x not in {other: 1}
    assert {x: 1}[again] == 1
    number = tirx.Var("n", "int64")
    assert not isinstance(number == 3, bool)
