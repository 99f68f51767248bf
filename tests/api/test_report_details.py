import pytest

from autopipe.api.report_details import attach_profile
from autopipe.report.document import GraphCall, KernelGraph
from tests.profiling.test_profile import profiled
from tests.report.reports import full


def graph(library, **tasks):
    calls = tuple(GraphCall(kernel=name, task=at, nodes=()) for name, at in tasks.items())
    return KernelGraph(library=library, function="main", calls=calls)


def test_kernels_have_their_task_and_their_bound():
    graphs = (graph("lib.0.so", conv=0), graph("lib.so", conv=1, transpose=0))
    found = attach_profile(full(graphs=graphs), profiled()).profile
    assert found is not None
    transpose, conv, _ = found.kernels
    assert [one.name for one in found.kernels] == ["transpose", "conv", "add"]
    assert [one.task for one in found.kernels] == [0, 1, None]
    assert conv.calls == 2
    assert conv.seconds == pytest.approx(16e-6)
    assert conv.bound == pytest.approx(2 * 1e6 / 100e9), "operations take longer than bytes"
    assert transpose.bound == pytest.approx(4000 / 20e9), "it only moves bytes"
    assert found.sum == pytest.approx(19e-6)
    assert found.whole == 20.5e-6
