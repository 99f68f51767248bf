import json

import pytest

from autopipe.artifacts.model_nodes import (
    KernelCall,
    KernelFunction,
    LibraryNodes,
    ModelNode,
    NodeMap,
)
from autopipe.artifacts.signature import Port, SizedLibrary
from autopipe.artifacts.tuning import TuningResult
from autopipe.config.dimension import Dimension
from autopipe.report.task_reports import TaskSources, report_graphs, report_tasks
from tests.artifacts.examples import (
    best_record,
    library,
    library_task,
    tuned_task,
    tuning_report,
)
from tests.lock.test_records import task

TEMPLATE = json.dumps({"template": "tile", "version": 1, "knobs": {"m": 4, "n": 8}})


def sources(tmp_path, calls, entries=(), functions=("conv", "conv1")):
    conv = task(0, "0f", dropped="small").model_copy(update={"functions": functions, "flops": 7.0})
    tuned = TuningResult(
        tuning_report(tuned_task(workload="0f", failed=1)),
        {"0f": best_record("0f", schedule=TEMPLATE)},
    )
    tuned.write(tmp_path)
    found = TaskSources(tasks={"0f": conv})
    found.read("tune", tmp_path)
    nodes = tuple(ModelNode(name=f"node{at}", op="Conv") for at in range(3))
    found.nodes = NodeMap(nodes=nodes, libraries=calls)
    built = library_task("conv", "0f", unchecked="too large")
    dimensions = {name: Dimension(max=9, likely=(4,)) for name in ("b", "n") if entries}
    port = Port(name="x", shape=(-1,) * len(dimensions), dtype="int8", dimensions=(*dimensions,))
    add = library_task("add", "1f", seconds=None)
    found.library = library(built, add, entries=entries, dimensions=dimensions, inputs=(port,))
    return found


def calls(file, *made):
    function = KernelFunction(name="main", calls=made)
    return LibraryNodes(library=file, functions=(function,))


def rows(found):
    return report_tasks(found, report_graphs(found))


def test_a_row_joins_what_the_stages_know(tmp_path):
    made = calls(
        "lib.so", KernelCall(kernel="conv_prepacked", nodes=(2,)),
        KernelCall(kernel="conv1", nodes=(0, 2, 9)), KernelCall(kernel="other", nodes=(1,)),
    )  # fmt: skip
    conv, add = rows(sources(tmp_path, (made,)))
    assert (conv.nodes, conv.flops, conv.dropped) == (("node0", "node2"), 7.0, "small")
    assert (conv.trials, conv.failed, conv.share) == (3, 1, 0.5)
    assert conv.schedule == ("template tile, version 1", "m=4 n=8")
    assert conv.problems == ("not compared with plain loops: too large",)
    assert (add.nodes, add.schedule, add.computes, add.trials) == ((), (), (), 0)


def test_kernels_of_a_library_for_certain_sizes_are_its_own_tasks(tmp_path):
    sizes = (SizedLibrary(library="lib.0.so", sizes={"b": 8, "n": 4}, weights=()),)
    made = (
        calls("lib.so", KernelCall(kernel="conv", nodes=(0,))),
        calls("lib.0.so", KernelCall(kernel="conv", nodes=(1,))),
    )
    found = sources(tmp_path, made, sizes, functions=("conv@8x4",))
    assert rows(found)[0].nodes == ("node1",)
    assert [graph.calls[0].task for graph in report_graphs(found)] == [None, 0]


def test_a_graph_holds_the_calls_of_each_function(tmp_path):
    made = calls(
        "lib.so", KernelCall(kernel="conv", nodes=(2,), reads=(0, 4)),
        KernelCall(kernel="conv_prepacked", nodes=(9,), added=True, reads=(0, 1)),
    )  # fmt: skip
    (graph,) = report_graphs(sources(tmp_path, (made,)))
    assert (graph.library, graph.function) == ("lib.so", "main")
    first, second = graph.calls
    assert (first.task, first.nodes, first.reads, first.added) == (0, ("node2",), (), False)
    assert (second.task, second.nodes, second.reads, second.added) == (0, (), (0,), True)
    assert report_graphs(TaskSources()) == ()


def test_a_schedule_is_not_told_where_its_record_was_not_used(tmp_path):
    found = sources(tmp_path, ())
    assert found.library is not None
    (conv, add) = found.library.tasks
    fallback = conv.model_copy(update={"seconds": None})
    found.library = found.library.model_copy(update={"tasks": (fallback, add)})
    assert rows(found)[0].schedule == ()


@pytest.mark.parametrize("stage", ["tasks", "tune", "build"])
def test_an_artifact_that_lacks_its_files_is_refused(tmp_path, stage):
    with pytest.raises(FileNotFoundError):
        TaskSources().read(stage, tmp_path)
