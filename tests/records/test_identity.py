"""One workload under many names."""

import json

import pytest
import tvm
from tvm import te

from autopipe.compiler.tasks import make_workload
from autopipe.records.about import WorkloadInfo
from autopipe.records.identity import digest_module


def text(one="x", other="y", *, shape=(8, 4), operation="T_add", swapped=False):
    x, y = te.placeholder(shape, name=one), te.placeholder(shape, name=other)
    first, second = (y, x) if swapped else (x, y)
    z = te.compute(shape, lambda i, j: first[i, j] - 2 * second[i, j], name=operation)
    return tvm.ir.save_json(make_workload(te.create_prim_func([x, y, z])).module)


@pytest.mark.parametrize(
    "names", [("data", "bias"), ("y", "x"), ("main", "T_add"), ("x", "float32")]
)
def test_names_of_a_model_do_not_count(names):
    assert text(*names) != text()
    assert digest_module(text(*names)) == digest_module(text())


@pytest.mark.parametrize("change", [{"shape": (8, 5)}, {"operation": "T_sub"}, {"swapped": True}])
def test_what_is_computed_counts_and_names_of_blocks_do(change):
    assert digest_module(text(**change)) != digest_module(text())


@pytest.mark.parametrize("other", ["", "{}", "[1]", '{"root_index": 0, "nodes": [3]}', "[" * 10**5])
def test_what_is_no_module_is_its_text(other):
    assert digest_module(other) == digest_module(str(other)) != digest_module(other + " ")
    assert WorkloadInfo.of_module(other) is None


def test_what_is_known_of_a_module_without_its_operators():
    about = WorkloadInfo.of_module(text())
    assert about == WorkloadInfo(("T_add",), ("float32[8,4]",) * 2, ("float32[8,4]",), 0.0)
    assert WorkloadInfo.parse(about.text()) == about
    assert WorkloadInfo.parse("{}") is WorkloadInfo.parse(None) is WorkloadInfo.parse("[1]") is None
    assert json.loads(about.text())["likeness"] is None
