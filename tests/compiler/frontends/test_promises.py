"""What ONNX operators promise of a model's outputs."""

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from autopipe.artifacts.promises import COMMON_CASES, SPECIAL_CASES, OutputPromises
from autopipe.compiler.frontends.onnx.facts.promises import derive_promises
from autopipe.compiler.frontends.onnx.load import load_model
from tests.compiler.frontends.models import model, node, save, tensor, value
from tests.support.table import each_row


def promises(nodes, constants=None, dtype="float32", weights=None):
    stored = [
        numpy_helper.from_array(np.asarray(values), name)
        for name, values in (constants or {}).items()
    ]
    graph = model(nodes, [value("x", [4, 5])], [value("y", [4, 5])], stored).graph
    return derive_promises(graph, weights or {}, {"y": dtype})


def chain(nodes):
    """Make nodes of (operator, operands, result)."""
    return [
        node(kind, operands.split(), out, **({"axis": 0} if kind == "Concat" else {}))
        for kind, operands, out in nodes
    ]


@each_row(
    "nodes, floor",
    [
        ([("Sigmoid", "x", "y")], 4.8e-7),
        ([("Relu", "x", "y")], 0.0),
        ([("Tanh", "x", "a"), ("Relu", "a", "y")], 4.8e-7),
        ([("Tanh", "x", "a"), ("Add", "a a", "y")], 9.6e-7),
        ([("Tanh", "x", "a"), ("Mul", "a half", "y")], 2.4e-7),
        ([("Tanh", "x", "a"), ("Exp", "a", "y")], 0.0),
        ([("Softmax", "x", "a"), ("Concat", "a x", "y")], 4.8e-7),
        ([("Greater", "x half", "b"), ("Tanh", "x", "a"), ("Where", "b x a", "y")], 4.8e-7),
        ([("DequantizeLinear", "x half", "y")], 1.0),
        ([("DequantizeLinear", "x endless", "y")], 0.0),
        ([("Tanh", "x", "a"), ("Mul", "a endless", "y")], 0.0),
    ],
)
def test_the_error_floor_of_an_output_follows_from_its_last_operators(nodes, floor):
    constants = {"half": np.float32(0.5), "endless": np.float32(np.inf)}
    found = promises(chain(nodes), constants).error_floors
    assert found.get("y", 0.0) == pytest.approx(floor, rel=0.02)
    assert promises(chain(nodes), constants, "int32").error_floors == {}


def test_an_error_floor_is_finer_in_float64_and_scaled_by_weights():
    nodes = chain([("Tanh", "x", "a"), ("Mul", "a w", "y")])
    weights = {"w": np.array([0.5, -3.0, 2.0], "f")}
    assert promises(nodes, weights=weights).error_floors == {"y": pytest.approx(3 * 2.0**-21)}
    fine = promises(nodes, dtype="float64", weights=weights)
    assert fine.error_floors == {"y": pytest.approx(3 * 2.0**-50)}


@each_row(
    "operators, case, finite, binds",
    [
        ("Conv Relu", "tiny", True, True),
        ("Conv Relu", "tiny", False, False),
        ("Conv Relu", "infinite", True, False),
        ("Mod", "signed", True, True),
        ("Mod Pow", "signed", True, False),
        ("Log", "tiny", True, False),
        ("Div Where", "nan", False, True),
        ("Div Max", "nan", False, True),
        ("Exp", "nan", False, False),
        ("Div Max", "infinite", False, True),
        ("", "infinite", False, False),
        ("", "tiny", True, True),
    ],
)
def test_the_special_cases_that_bind_follow_from_all_operators(operators, case, finite, binds):
    nodes = [node(kind, ["x", "x"], f"{kind}-y") for kind in operators.split()]
    assert promises(nodes).binds(case, finite=finite, device="cpu") == binds


def test_comparisons_propagate_nan_on_processors_alone():
    compared, divided = (promises([node(kind, ["x", "x"])]) for kind in ("Max", "Div"))
    for device in ("cpu", "cuda"):
        assert compared.binds("nan", finite=False, device=device) is (device == "cpu")
        assert compared.binds("infinite", finite=False, device=device)
        assert divided.binds("nan", finite=False, device=device)


@each_row(
    "operators, strict",
    [("MaxPool", True), ("ReduceMax Abs", True), ("Max", False), ("MaxPool Exp", False)],
)
def test_a_reference_that_drops_nan_is_not_followed_where_it_has_to_be_propagated(
    operators, strict
):
    found = promises([node(kind, ["x", "x"], f"{kind}-y") for kind in operators.split()])
    assert found.needs_strict_nan("cpu") is strict
    assert not found.needs_strict_nan("cuda")


@pytest.mark.parametrize(
    ("operands", "exact"),
    [
        ("x a", False),
        ("a x", False),
        ("a one", True),
        ("one a", True),
        ("x z", True),
        ("m x", True),
    ],
)
def test_nothing_is_promised_of_infinities_that_a_sum_takes_away_again(operands, exact):
    """`x - (x + 1)` is -1 at every number; which infinity that leaves, ONNX does not say."""
    nodes = chain([("Add", "x one", "a"), ("Mul", "x x", "m"), ("Sub", operands, "y")])
    for constants in ({"constants": {"one": np.float32(1)}}, {"weights": {"one": np.ones(2, "f")}}):
        found = promises(nodes, **constants)
        assert found.exact_cases == (SPECIAL_CASES if exact else COMMON_CASES)


@each_row(
    "source, target, exact",
    [
        ("x", TensorProto.FLOAT16, True),
        ("x", TensorProto.FLOAT, True),
        ("a", TensorProto.FLOAT, False),
        ("a", TensorProto.FLOAT16, True),
        ("x", TensorProto.INT64, False),
    ],
)
def test_a_cast_of_a_computed_value_or_to_integers_is_not_exact(source, target, exact):
    found = promises([node("Abs", ["x"], "a"), node("Cast", [source], to=target)])
    assert found.exact_cases == (SPECIAL_CASES if exact else ())


@each_row(
    "operator, chooses, rounds",
    [("TopK", True, False), ("QLinearConv", False, True), ("Relu", False, False)],
)
def test_choices_and_roundings_are_found_inside_branches(operator, chooses, rounds):
    body = helper.make_graph([node(operator, ["x"])], "then", [], [value("y", [4, 5])])
    choice = node("If", ["b"], then_branch=body, else_branch=body)
    found = promises([choice])
    assert (found.chooses_rows, found.rounds_to_steps) == (chooses, rounds)


def test_an_imported_model_states_its_promises(tmp_path):
    """The weight is no longer in the graph when they are derived, and scales the floor."""
    made = model(
        [node("Tanh", ["x"], "a"), node("Mul", ["a", "w"])],
        [value("x", [2, 3])],
        [value("y", [2, 3])],
        [tensor("w", 2, 3, fill=-4.0)],
    )
    found = load_model(save(made, tmp_path), {}, None, None).promises
    assert found == OutputPromises(error_floors={"y": 2.0**-19})
