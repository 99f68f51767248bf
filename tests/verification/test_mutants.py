"""What passes and what does not: right programs, and kernels that go wrong in ways that they do."""

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from autopipe.artifacts.signature import Port
from autopipe.config.verify import Verify
from autopipe.errors import GateError
from autopipe.store import arrays
from autopipe.verification import reference
from autopipe.verification.check import verify_build
from autopipe.verification.inputs import Case, list_special_cases, nudged
from autopipe.verification.reference import Expected
from tests.support.table import each_row
from tests.verification import mutants
from tests.verification.imported_onnx import save_imported

pytest.importorskip("onnxruntime")

NETWORKS = {
    "plain": lambda: mutants.network(mutants.ended("Identity")),
    "sigmoids near 0": lambda: mutants.network(mutants.ended("Sigmoid"), shift=-12.0),
    "softmax": lambda: mutants.network(mutants.ended("Softmax", axis=1)),
    "tanh, then half": lambda: mutants.network(mutants.ended("Tanh", "Relu")),
}


@pytest.fixture
def verified(tmp_path, monkeypatch):
    """Verify what `run` computes as a build of a model, with the reference in this process."""

    def verified(made, run, **options):
        from safetensors.numpy import load_file

        save_imported(made, tmp_path)
        names = tuple(value.name for value in made.graph.output)
        right = mutants.by_onnxruntime(made)

        def expect(engines, model, cases, optional=(), doubtful=()):
            files, refused = [case.with_suffix(".expected") for case in cases], {}
            for case, file in zip(cases, files, strict=True):
                try:
                    arrays.save(dict(zip(names, right(load_file(case)), strict=True)), file)
                except Exception as error:
                    if case not in optional:
                        raise
                    refused[file] = str(error)
            return Expected("onnxruntime", names, tuple(files), (), refused=refused)

        monkeypatch.setattr(reference, "expect", expect)
        return verify_build(mutants.build(made, run), tmp_path, Verify(**options), tmp_path)

    return verified


def assert_only_right_passes(verified, made):
    result = verified(made, mutants.by_numpy(made))
    assert len(result.cases) == 8
    found = list(mutants.mutants(made))
    assert len(found) > 3
    for what, wrong in found:
        try:
            verified(made, mutants.by_onnxruntime(wrong))
        except GateError:
            continue
        raise AssertionError(what)


@pytest.mark.fault("E1", "G14")
@pytest.mark.parametrize("name", NETWORKS)
def test_what_goes_wrong_in_a_kernel_is_found_behind_any_last_operator(verified, name):
    assert_only_right_passes(verified, NETWORKS[name]())


@pytest.mark.fault("E1", "G14")
@pytest.mark.parametrize(
    "last", ["Relu", pytest.param("GlobalAveragePool", marks=pytest.mark.slow)]
)
def test_it_is_found_in_quantized_models_too(verified, tmp_path, last):
    assert_only_right_passes(
        verified, mutants.quantized(mutants.network(mutants.ended(last)), tmp_path)
    )


def single(kind, shape=(4, 33), output=TensorProto.FLOAT, **attributes):
    """Return a model of one operator."""
    return mutants.model([helper.make_node(kind, ["x"], ["y"], **attributes)], shape, {}, output)


def test_sigmoids_that_vanish_may_differ_by_roundings_of_one(verified):
    made = NETWORKS["sigmoids near 0"]()
    right = mutants.by_onnxruntime(made)
    verified(made, lambda given: [right(given)[0] + np.float32(3e-7)])
    with pytest.raises(GateError):
        verified(made, lambda given: [right(given)[0] + np.float32(3e-6)])


@each_row(
    "kind, compute",
    [
        ("Log", np.log),
        ("Sqrt", np.sqrt),
        ("Acos", np.arccos),
        ("Acosh", np.arccosh),
        ("Atanh", np.arctanh),
    ],
)
def test_inputs_are_drawn_where_the_model_has_an_answer(verified, kind, compute):
    def run(given):
        with np.errstate(all="ignore"):
            return [compute(given["x"])]

    result = verified(single(kind), run)
    assert [case.skipped for case in result.cases[:3]] == [False] * 3
    assert sum("on others the reference is not finite" in each for each in result.warnings) == 3
    with pytest.raises(GateError, match="case 'random-"):
        verified(single(kind), lambda given: [run(given)[0] * np.float32(1.01)])


@pytest.mark.fault("E2", "E3")
@each_row(
    "kind, attributes, wrong",
    [
        ("Relu", {}, lambda x: np.fmax(x, np.float32(0))),
        ("IsInf", {"detect_negative": 0}, np.isinf),
        ("IsInf", {"detect_positive": 0}, np.isinf),
        ("IsNaN", {}, lambda x: np.zeros(x.shape, bool)),
        ("Abs", {}, lambda x: np.minimum(np.abs(x), np.finfo("f").max)),
        ("Floor", {}, lambda x: np.nan_to_num(np.floor(x), posinf=np.inf, neginf=-np.inf)),
    ],
)
def test_an_operator_that_takes_special_numbers_wrongly_is_found(verified, kind, attributes, wrong):
    output = TensorProto.BOOL if kind.startswith("Is") else TensorProto.FLOAT
    made = single(kind, output=output, **attributes)
    verified(made, mutants.by_onnxruntime(made))
    with pytest.raises(GateError, match=r"case '(infinite|nan)'"):
        verified(made, lambda given: [wrong(given["x"])])


@pytest.mark.fault("E2")
def test_what_is_not_promised_is_told_and_fails_nothing(verified):
    def run(given):
        with np.errstate(all="ignore"):
            return [np.nan_to_num(np.exp(given["x"]), posinf=np.inf)]

    result = verified(single("Exp"), run)
    differing = [case for case in result.special if case.outcome == "failed"]
    assert [case.name for case in differing] == ["nan"]
    assert "of the reference are not finite, first nan" in str(differing[0].outputs[0].failure)
    assert {case.outcome for case in result.cases} <= {"passed", "skipped"}


def test_a_remainder_of_negative_integers_is_tried(verified):
    """What is divided by is 7; nothing would divide by the zeros of an input."""
    port = helper.make_tensor_value_info("x", TensorProto.INT32, [40])
    out = helper.make_tensor_value_info("y", TensorProto.INT32, [40])
    seven = onnx.numpy_helper.from_array(np.array([7], "int32"), "seven")
    node = helper.make_node("Mod", ["x", "seven"], ["y"])
    graph = helper.make_graph([node], "g", [port], [out], [seven])
    opset = helper.make_opsetid("", 17)
    made = helper.make_model(graph, opset_imports=[opset], ir_version=8)
    divisor = np.int32(7)
    verified(made, lambda given: [np.mod(given["x"], divisor)])
    with pytest.raises(GateError, match="case 'signed'"):
        verified(made, lambda given: [np.fmod(given["x"], divisor)])


def test_an_edge_that_the_reference_refuses_is_skipped(verified):
    port = helper.make_tensor_value_info("x", TensorProto.INT32, [40])
    out = helper.make_tensor_value_info("y", TensorProto.INT32, [40])
    nodes = [
        helper.make_node("Max", ["x", "x"], ["same"]),
        helper.make_node("ReduceSum", ["x"], ["sum"], keepdims=0),
        helper.make_node("Mod", ["same", "sum"], ["y"]),
    ]
    graph = helper.make_graph(nodes, "g", [port], [out])
    opset = helper.make_opsetid("", 17)
    made = helper.make_model(graph, opset_imports=[opset], ir_version=8)
    result = verified(made, lambda given: [np.mod(given["x"], given["x"].sum(dtype="int32"))])
    outcomes = {case.name: str(case.outcome) for case in result.cases}
    assert outcomes == {
        "random-0": "passed", "random-1": "passed", "random-2": "passed", "zeros": "skipped",
        "ones": "passed", "large": "passed",
    }  # fmt: skip
    assert any("Integer modulo by zero" in warning for warning in result.warnings)


def test_special_numbers_are_few_and_all_are_there():
    port = Port(name="x", shape=(64, 10), dtype="float32")
    count = Port(name="n", shape=(9,), dtype="int64")
    found = {case.name: case.arrays for case in list_special_cases([port, count], {}, seed=0)}
    assert list(found) == ["tiny", "huge", "infinite", "nan", "signed"]
    assert np.isinf(found["infinite"]["x"]).sum() == np.isnan(found["nan"]["x"]).sum() == 20
    assert {np.inf, -np.inf} < set(found["infinite"]["x"].flat)
    assert np.isfinite(found["huge"]["x"]).all()
    below = np.abs(found["tiny"]["x"]) < np.finfo("f").smallest_normal
    assert 0 < (found["tiny"]["x"] != 0)[below].sum() < 20
    assert (found["signed"]["n"] < 0).any()
    assert (found["signed"]["n"] != 0).all()
    assert [case.name for case in list_special_cases([count], {"n": 3}, seed=0)] == []


def test_a_cast_down_and_up_again_that_was_dropped_is_found(verified):
    types = [TensorProto.FLOAT16, TensorProto.FLOAT]
    nodes = [
        helper.make_node("Cast", ["x"], ["a"], to=types[0]),
        helper.make_node("Cast", ["a"], ["y"], to=types[1]),
    ]
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [64]) for name in "xy"]
    made = helper.make_model(
        helper.make_graph(nodes, "casts", ends[:1], ends[1:]),
        opset_imports=[helper.make_opsetid("", 17)], ir_version=8,
    )  # fmt: skip
    verified(made, mutants.by_onnxruntime(made))
    with pytest.raises(GateError, match="'huge'"):
        verified(made, lambda feeds: [feeds["x"]])


def test_inputs_are_nudged_by_a_share_or_by_roundings():
    given = np.array([1.0, -3.0, 0.0, np.inf], "f")
    case = Case("random-0", edge=False, arrays={"x": given, "n": np.arange(3)})
    for share, most in ((0.0, 2.0**-22), (2.0**-12, 2.0**-12)):
        moved = nudged(case, 0, share).arrays
        assert np.array_equal(moved["n"], np.arange(3))
        assert moved["x"].dtype == given.dtype
        assert np.abs(moved["x"][:2] / given[:2] - 1) == pytest.approx(most, rel=0.01)
        assert list(moved["x"][2:]) == [0.0, np.inf]


def test_denormal_numbers_are_not_zero(verified):
    made = single("Sign")
    right = mutants.by_onnxruntime(made)
    verified(made, right)
    with pytest.raises(GateError, match="case 'tiny'"):
        verified(made, lambda given: [right({"x": given["x"] * (np.abs(given["x"]) > 1e-30)})[0]])
