import time
from dataclasses import replace
from unittest.mock import create_autospec

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from autopipe.artifacts.signature import Port, Signature
from autopipe.artifacts.verification import Verification
from autopipe.compiler.frontends.onnx.facts.reference import write_reference
from autopipe.compiler.library.runtime import LoadedModel
from autopipe.config.verify import Verify
from autopipe.errors import GateError, WrongBuildError
from autopipe.verification import judge
from autopipe.verification.check import find_wrong_case, verify_build
from tests.verification.imported_onnx import describe_imported, save_imported

X = Port(name="x", shape=(50,), dtype="float32")
Y = Port(name="y", shape=(50,), dtype="float32")


def verified(tmp_path, compute, tell_failure=lambda _: None, **options):
    """Verify a function as if it were a build of the identity."""
    build, asked = identity(tmp_path, compute), Verify(reference="onnx", **options)
    return verify_build(build, tmp_path, asked, tmp_path, tell_failure=tell_failure)


def identity(tmp_path, compute):
    """Write the identity as a model, and return a function as if it were a build of it."""
    ports = [
        helper.make_tensor_value_info(port.name, TensorProto.FLOAT, port.shape) for port in (X, Y)
    ]
    node = helper.make_node("Identity", ["x"], ["y"])
    graph = helper.make_graph([node], "g", ports[:1], ports[1:])
    opset = helper.make_opsetid("", 17)
    save_imported(helper.make_model(graph, opset_imports=[opset], ir_version=8), tmp_path)

    signature = Signature(inputs=(X,), outputs=(Y,), weights=(), threads=1)
    build = create_autospec(LoadedModel, instance=True)
    build.signature, build.rounded, build.short = signature, (), None
    build.side_effect = lambda arrays: {"y": compute(arrays["x"])}
    return build


def test_rounding_on_the_scale_of_usual_outputs_passes_where_outputs_are_small(tmp_path):
    verified(tmp_path, lambda x: x + x.dtype.type(5e-5))


def test_a_tolerance_is_on_the_scale_of_the_output(tmp_path):
    with pytest.raises(GateError):
        verified(tmp_path, lambda x: x + x.dtype.type(5e-4))


def test_a_given_tolerance_is_literal(tmp_path):
    verified(tmp_path, lambda x: x + x.dtype.type(5e-4), atol=1e-3)
    with pytest.raises(GateError, match="allowed rtol 0 and atol 1e-05"):
        verified(tmp_path, lambda x: x + x.dtype.type(5e-5), rtol=0.0, atol=1e-5)


def test_each_case_has_the_time_that_it_took(tmp_path):
    waits = iter([0.02])

    def compute(x):
        time.sleep(next(waits, 0))
        return x

    first, *others = verified(tmp_path, compute).cases
    assert first.seconds > 0.02
    assert all(case.seconds > 0 for case in others)


def test_the_worst_of_several_failures_is_named(tmp_path):
    with pytest.raises(
        GateError,
        match=r"wrong on case 'large': .* \d comparisons fail in all; no tolerance would pass",
    ):
        verified(tmp_path, lambda x: -x)


def test_what_was_compared_of_a_wrong_build_is_told(tmp_path):
    told: list[Verification] = []
    with pytest.raises(WrongBuildError) as error:
        verified(tmp_path, lambda x: x if x.any() else x + 1, told.append)
    (found,) = told
    assert found.failure == str(error.value)
    failed = [case.name for case in found.binding if case.outcome == "failed"]
    assert failed == ["zeros"]
    assert len(found.cases) > 1, "those that pass are told with it"


def test_the_worst_case_is_found_again(tmp_path):
    """Where all pass it is the one that uses most of the allowed error."""

    def find(compute, **options):
        asked = Verify(reference="onnx", **options)
        found = find_wrong_case(identity(tmp_path, compute), tmp_path, asked, tmp_path)
        return found[1].name, any(output.failure for output in found[1].outputs)

    assert find(lambda x: -x) == ("large", True)
    assert find(lambda x: x if x.any() else x + 1) == ("zeros", True)
    assert find(lambda x: x if x.any() else x + 1, atol=2.0) == ("zeros", False)


def test_an_error_on_one_case_alone_is_found(tmp_path):
    with pytest.raises(GateError, match=r"wrong on case 'zeros': 50 of 50 values"):
        verified(tmp_path, lambda x: x if x.any() else x + 1)


def test_the_farthest_of_three_moves_tells_how_much_an_edge_wavers(tmp_path, monkeypatch):
    def steady_but_for_the_third(case, seed, share=0.0):
        moved = {name: array + (seed % 3 == 2) for name, array in case.arrays.items()}
        return replace(case, arrays=moved)

    def off_on_large(by):
        return lambda x: x + x.dtype.type(by if 20 < np.abs(x).max() < 1000 else 0)

    monkeypatch.setattr(judge, "nudged", steady_but_for_the_third)
    verified(tmp_path, off_on_large(3.0), seed=0)
    with pytest.raises(GateError, match="wrong on case 'large'"):
        verified(tmp_path, off_on_large(6.0), seed=0)


def test_a_model_of_bytes_that_takes_integers_may_round_as_moved_weights_do(tmp_path):
    """Each row of the table lies between two steps; a build may take either, and no third."""
    random = np.random.default_rng(0)
    table = (random.integers(-100, 100, (9, 6)) + 0.5).astype("f4") * np.float32(1 / 64)
    last = random.standard_normal((6, 4)).astype("f4")
    steps = [numpy_helper.from_array(np.array(1 / 64, np.float32), "s"),
             numpy_helper.from_array(np.array(0, np.int8), "z")]  # fmt: skip
    nodes = [
        helper.make_node("Gather", ["table", "x"], ["row"]),
        helper.make_node("QuantizeLinear", ["row", "s", "z"], ["bytes"]),
        helper.make_node("DequantizeLinear", ["bytes", "s", "z"], ["floats"]),
        helper.make_node("MatMul", ["floats", "last"], ["y"]),
    ]
    x, y = Port(name="x", shape=(5,), dtype="int64"), Port(name="y", shape=(5, 4), dtype="float32")
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.INT64, x.shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, y.shape)],
        steps,
    )
    weights = {"table": table, "last": last}
    graph.input.extend(
        helper.make_tensor_value_info(name, TensorProto.FLOAT, values.shape)
        for name, values in weights.items()
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    write_reference(model, weights, None, tmp_path)
    describe_imported(model, tmp_path)
    build = create_autospec(LoadedModel, instance=True)
    build.signature = Signature(inputs=(x,), outputs=(y,), weights=(), threads=1)
    build.rounded, build.short = (), None

    def computed(bias):
        floats = np.floor(table * 64 + bias) / np.float32(64)
        build.side_effect = lambda arrays: {"y": floats[arrays["x"]] @ last}
        return verify_build(build, tmp_path, Verify(reference="onnxruntime", cases=1), tmp_path)

    computed(0.75)
    with pytest.raises(GateError):
        computed(8.25)
