"""What a page says of memory over a run."""

import pytest
from pydantic import ValidationError

from autopipe.report.document import GraphCall, KernelGraph
from autopipe.report.html.memory import count_held_bytes, list_results
from autopipe.report.html.page import build_page
from autopipe.report.op_info import count_result_bytes
from autopipe.tasks.op_info import Op, OpInfo, Parameter, Result
from autopipe.tasks.tensor import Tensor
from tests.report.pages import Page
from tests.report.reports import full


def graph(*reads):
    calls = tuple(GraphCall(kernel="k", task=0, nodes=(), reads=each) for each in reads)
    return KernelGraph(library="lib.so", function="main", calls=calls)


def test_a_result_is_held_from_the_call_that_makes_it_to_the_last_that_reads_it():
    task = full().tasks[0].model_copy(update={"result_bytes": 8})
    held = list_results(graph((), (0,), (0,), (2,)), [task])
    assert [(one.first, one.last) for one in held] == [(0, 2), (1, 3), (2, 3), (3, 3)]
    assert count_held_bytes(held) == [8, 16, 24, 24]


@pytest.mark.parametrize("reads", [((9,),), ((), (-1,)), ((), (1,))])
def test_a_call_reads_results_of_earlier_ones_alone(reads):
    with pytest.raises(ValidationError, match="a call reads the results of earlier ones"):
        graph(*reads)


def test_a_call_of_no_known_task_holds_nothing():
    assert count_held_bytes(list_results(graph((), (0,)), [])) == [0, 0]


def test_a_page_shows_the_largest_results():
    page = Page(build_page(full()))
    assert "At most 4 MiB of results are held at once, by call 2 of 3, demo," in page.text
    assert "1 call with results of an unknown size count as none." in page.text
    assert ["demo", "3", "1", "3"] in page.rows
    assert ["demo", "1", "2", "3"] in page.rows


def test_bytes_of_results_are_those_of_the_operators_that_make_them():
    tensors = (Tensor(shape=(2, 3), dtype="float32"), Tensor(shape=(4,), dtype="int8"))
    op = Op(name="split", attributes={}, arguments=(Parameter(parameter=0),), outputs=tensors)
    info = OpInfo(kind="other", ops=(op,), results=(Result(op=0), Result(op=0, output=1)))
    assert count_result_bytes(info) == 28
    unknown = info.model_copy(update={"results": (Result(op=0), Parameter(parameter=0))})
    assert count_result_bytes(unknown) == 0
