"""A child vets the bytes of a model; this process repeats what other files may have changed."""

import os

import pytest
from onnx import helper

from autopipe.compiler.frontends.onnx.reading import check_operators, gate, memory, source, tensors
from autopipe.errors import ModelError
from tests.compiler.frontends.models import dense, external, model, node, save, value


@pytest.fixture
def checked(monkeypatch):
    """The names of the checks that run in this process."""
    names, parent = [], os.getpid()

    def watch(module, name):
        check = getattr(module, name)

        def watched(*arguments):
            names.extend([name] * (os.getpid() == parent))
            return check(*arguments)

        monkeypatch.setattr(module, name, watched)

    watch(check_operators, "check_operators")
    watch(memory, "check_memory")
    return names


def test_a_child_alone_checks_bytes_that_decide_all(tmp_path, checked):
    path = save(dense(), tmp_path)
    data = source.read_model_file(path)
    admitted = gate.admit_model(data, path, {})
    assert checked == []
    vetted = gate.vet_model(data, path, {})
    assert checked == ["check_operators", "check_memory"]
    assert admitted.model == vetted.model
    assert admitted.weights == vetted.weights
    assert (admitted.inputs, admitted.shapes, admitted.opset) == (
        vetted.inputs, vetted.shapes, vetted.opset,
    )  # fmt: skip


def test_external_data_is_checked_again_since_it_may_change(tmp_path, checked):
    made = dense()
    (tmp_path / "data.bin").write_bytes(external(made))
    path = save(made, tmp_path)
    gate.admit_model(source.read_model_file(path), path, {})
    assert checked == ["check_operators", "check_memory"]


@pytest.mark.parametrize("kind", ["graph", "graphs"])
def test_a_graph_that_no_operator_takes_is_refused(tmp_path, kind):
    relu, body = node("Relu", ["x"]), dense().graph
    relu.attribute.append(helper.make_attribute("__hidden", body if kind == "graph" else [body]))
    made = model([relu], [value("x", [2, 3])], [value("y", [2, 3])])
    path = save(made, tmp_path)
    for check in (gate.vet_model, gate.admit_model):
        with pytest.raises(ModelError, match=r"Relu .*has a graph as attribute '__hidden'"):
            check(source.read_model_file(path), path, {})


def test_operators_with_graphs_are_those_of_onnx():
    import onnx

    kinds = {onnx.defs.OpSchema.AttrType.GRAPH, onnx.defs.OpSchema.AttrType.GRAPHS}
    assert {
        schema.name
        for schema in onnx.defs.get_all_schemas_with_history()
        if not schema.domain and any(each.type in kinds for each in schema.attributes.values())
    } == tensors.WITH_GRAPHS
