import numpy as np
from onnx import TensorProto, helper, numpy_helper

from autopipe.artifacts.signature import Port, Signature
from autopipe.config.verify import Verify
from autopipe.verification.case_source import CaseSource
from autopipe.verification.limits import find_input_limits
from tests.support.table import each_row
from tests.verification.imported_onnx import save_imported


def saved(tmp_path, nodes, tables, ids=("ids",)):
    inputs = [helper.make_tensor_value_info(name, TensorProto.INT64, [2]) for name in ids]
    outputs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)]
    initializers = [numpy_helper.from_array(np.zeros(s, "f4"), n) for n, s in tables.items()]
    graph = helper.make_graph(nodes, "g", inputs, outputs, initializers)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return save_imported(model, tmp_path)


def test_real_integers_are_not_held_to_what_drawn_ones_are(tmp_path):
    """Those are below 16 here, since places are doubled; real ones may count from the end."""
    nodes = [helper.make_node("Add", ["ids", "ids"], ["at"]), gather("t", "at")]
    port = Port(name="ids", shape=(2,), dtype="int64")
    result = Port(name="y", shape=(2, 3), dtype="float32")
    signature = Signature(inputs=(port,), outputs=(result,), weights=(), threads=1)
    source = CaseSource(signature, saved(tmp_path, nodes, {"t": (49, 3)}), Verify())
    np.savez(tmp_path / "real.npz", ids=np.array([-20, 24]))
    (batch,) = source.batches({"real.npz": tmp_path / "real.npz"})
    drawn = {case.name: case.arrays["ids"] for case in batch.drawn}
    assert max(drawn["random-0"]) < 16
    np.testing.assert_array_equal(drawn["real.npz"], [-20, 24])


def gather(table, ids, output="y", axis=0):
    return helper.make_node("Gather", [table, ids], [output], axis=axis)


def computed(tmp_path, nodes):
    """Save a model whose table of 49 rows is chosen from by what `nodes` compute of `ids`."""
    table = {"t": (49, 3)}
    return saved(tmp_path, [*nodes, gather("t", "at")], table)


@each_row(
    "operator, limit",
    [("Add", 16), ("Mul", 4), ("Sub", None)],
)
def test_integers_are_made_smaller_until_onnxruntime_takes_them(tmp_path, operator, limit):
    nodes = [helper.make_node(operator, ["ids", "ids"], ["at"])]
    model = computed(tmp_path, nodes)
    port = Port(name="ids", shape=(2,), dtype="int64")
    assert find_input_limits(model, [port]) == ({} if limit is None else {"ids": limit})
