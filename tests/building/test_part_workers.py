"""The kernels of a model are compiled in parts, by as many children as there are cores."""

import os
from functools import partial

import numpy as np
import pytest
import tvm
from tvm import relax

from autopipe.building.compiling import _ask_all
from autopipe.building.part_workers import PartWorkers
from autopipe.compiler import lowering, module_io, tasks
from autopipe.compiler.library import build
from autopipe.compiler.pass_observer import list_pass_times, observe_passes, pass_context
from autopipe.compiler.walls.foreign_code import ForeignCode
from autopipe.processes import contained
from autopipe.processes.contained import Child, Failed
from autopipe.schedules.engines import default
from tests.compiler import graphs

pytestmark = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")


def lowered_graph():
    """Return a model of several kernels, lowered to calls of them."""
    module = graphs.convolution()
    optimized = lowering.optimize(module, 1, graphs.NHWC, graphs.TARGET, print)
    lowered = lowering.lower(optimized.module, graphs.TARGET)
    scheduled = {
        name: default.schedule(tasks.make_workload(function).module, graphs.TARGET)
        for name, function in module_io.list_prim_funcs(lowered)
    }
    return build.lower_graph(build.link_graph(lowered, scheduled, graphs.TARGET))


def compile_parts(graph, folder, children):
    """Compile and link a graph; return the path of its library."""
    folder.mkdir(exist_ok=True)
    compile_part = partial(graph.compile_part, folder=folder)
    workers = PartWorkers(graph.parts, compile_part)
    while workers.await_part(children) is not None:
        pass
    objects = graph.list_objects(folder)
    build.export(build.compile_graph(graph), folder / "lib.so", None, objects)
    return folder / "lib.so"


@pytest.mark.parametrize("children", [1, 2, 8])
def test_the_share_that_is_compiled_is_known_after_each_part(tmp_path, children):
    parts = [("a", "b"), ("c", "d"), ("e",)]
    workers = PartWorkers(parts, lambda number: (tmp_path / str(number)).touch())
    shares = [workers.await_part(children) or 0.0 for _ in parts]
    assert workers.await_part(children) is None
    assert shares == sorted(shares)
    assert set(shares) <= {0.2, 0.4, 0.6, 0.8, 1.0}
    assert shares[-1] == 1.0
    assert {path.name for path in tmp_path.iterdir()} == {"0", "1", "2"}


def test_without_parts_nothing_is_left_to_wait_for():
    assert PartWorkers([], print).await_part(2) is None


@pytest.mark.parametrize("most", [1, 2])
def test_models_are_asked_until_all_their_parts_are_compiled(most):
    def begin():
        workers = PartWorkers([("a",), ("b",)], lambda _: None)
        return lambda request: {"ok": workers.await_part(1) or f"{request[0]} is done"}

    counted = []
    with Child(begin) as first, Child(begin) as second:
        children = {"": first, "x": second}
        answers = _ask_all(children, "compile", most, lambda shares: counted.append(dict(shares)))
    assert answers == {"": "compile is done", "x": "compile is done"}
    for label in children:
        seen = [shares[label] for shares in counted if label in shares]
        assert list(dict.fromkeys(seen)) == [0.5, 1.0, "compile is done"]


def crash(number):
    if number == 1:
        os.abort()


def carry_code(number):
    raise ForeignCode(f"part {number} has assembly in it")


@pytest.mark.parametrize(
    ("work", "message"),
    [(crash, "^killed by SIGABRT$"), (carry_code, "ForeignCode: part 0 has assembly")],
)
def test_a_part_that_cannot_be_compiled_fails_the_child_that_compiles_the_model(work, message):
    def begin():
        workers = PartWorkers([("a",), ("b",), ("c",)], work)
        return lambda _: {"ok": workers.await_part(1)}

    with Child(begin) as child, pytest.raises(Failed, match=message):
        _ask_all({"": child}, "compile", 1)


def test_a_part_that_takes_too_long_has_failed(monkeypatch):
    monkeypatch.setattr(contained, "SECONDS", -9.5)  # and 10 for a kernel
    workers = PartWorkers([("a",)], wait_forever)
    with pytest.raises(Failed, match=r"no answer within 0.5 s"):
        workers.await_part(1)


def wait_forever(_):
    os.read(os.pipe()[0], 1)


def test_the_library_depends_neither_on_the_number_of_children_nor_on_the_process(
    tmp_path, monkeypatch
):
    monkeypatch.setattr(build, "_PART", 1)
    graph = build.split_kernels(lowered_graph())
    assert len(graph.parts) > 1
    libraries = [
        compile_parts(graph, tmp_path / str(children), children).read_bytes() for children in (1, 2)
    ]
    assert libraries[0] == libraries[1]


def test_parts_and_a_whole_compute_the_same(tmp_path, monkeypatch):
    monkeypatch.setattr(build, "_PART", 1)
    graph = lowered_graph()
    build.export(build.compile_graph(graph), tmp_path / "whole.so")
    paths = [compile_parts(build.split_kernels(graph), tmp_path, 2), tmp_path / "whole.so"]
    shapes = build.compile_graph(graph).parameters
    values = [np.random.default_rng(0).random(shape).astype(dtype) for shape, dtype in shapes]
    results = [
        relax.VirtualMachine(tvm.runtime.load_module(path), tvm.cpu())["main"](
            *map(tvm.runtime.tensor, values)
        ).numpy()
        for path in paths
    ]
    assert results[0].tobytes() == results[1].tobytes()


def test_the_passes_of_parts_are_measured(tmp_path):
    graph = build.split_kernels(lowered_graph())
    with observe_passes(tmp_path / "passes"), pass_context():
        compile_parts(graph, tmp_path / "built", 1)
        runs = {time.name: time.runs for time in list_pass_times()}
    assert runs["propagate_nan"] == len(graph.parts)
    assert (tmp_path / "passes" / "part0" / "000_input.txt").exists()
