"""Open sizes that a build is compared at, and what becomes of one that is wrong at some."""

from contextlib import nullcontext
from unittest.mock import create_autospec

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from autopipe.artifacts.signature import Port, Signature, SizedLibrary
from autopipe.config.dimension import Dimension
from autopipe.config.verify import Verify
from autopipe.errors import ConfigError, GateError, ModelError, StageError
from autopipe.verification.check import verify_build
from autopipe.verification.contained_build import ContainedBuild
from autopipe.verification.sizes import choose_trial_sizes
from tests.support.table import each_row
from tests.verification.imported_onnx import save_imported

BATCH = Dimension(max=64, likely=(8,))
HEIGHT = Dimension(min=32, max=1920, multiple=32, likely=(640,))
WIDTH = Dimension(min=40, max=1000, multiple=8, likely=(320, 640))


EDGES = Dimension(min=0, max=100, likely=(10,))


@each_row(
    "dimensions", [{"b": BATCH}, {"e": EDGES}, {"h": HEIGHT}, {"b": BATCH, "h": HEIGHT, "w": WIDTH}]
)
def test_sizes_are_in_range_and_each_is_tried_once(dimensions):
    found = choose_trial_sizes(dimensions, 0)
    keys = [tuple(sizes.values()) for sizes in found]
    assert len(set(keys)) == len(keys) <= 20
    assert len(keys) >= 15
    for sizes in found:
        assert list(sizes) == list(dimensions)
        assert all(dimensions[name].refusal(size) is None for name, size in sizes.items())
        assert any(size not in dimensions[name].likely for name, size in sizes.items())
    assert found == choose_trial_sizes(dimensions, 0) != choose_trial_sizes(dimensions, 1)
    first = {name: one.first for name, one in dimensions.items()}
    last = {name: one.last for name, one in dimensions.items()}
    assert list(found[:2]) == [first, last]


def test_boundaries_of_tiles_are_tried_and_one_step_off():
    found = {sizes["b"] for seed in range(20) for sizes in choose_trial_sizes({"b": BATCH}, seed)}
    assert found >= {15, 16, 17, 31, 32, 33, 63, 64, 7, 9, 1, 2, 3}
    assert 8 not in found
    heights = {
        sizes["h"] for seed in range(20) for sizes in choose_trial_sizes({"h": HEIGHT}, seed)
    }
    assert heights >= {32, 64, 480, 512, 544, 992, 1024, 1056}


def test_a_range_of_one_size_has_no_other():
    assert choose_trial_sizes({"b": Dimension(min=8, max=8, likely=(8,))}, 0) == ()


X = Port(name="x", shape=(-1, 4), dtype="float32", dimensions=("batch", ""))
SIGNATURE = Signature(
    inputs=(X,), outputs=(X.model_copy(update={"name": "y"}),), weights=(), threads=1,
    dimensions={"batch": Dimension(max=40, likely=(8,))},
    entries=(SizedLibrary(library="lib.0.so", sizes={"batch": 8}, weights=()),),
)  # fmt: skip


def save(folder, nodes, **weights):
    x, y = (
        helper.make_tensor_value_info(name, TensorProto.FLOAT, ["batch", 4]) for name in ("x", "y")
    )
    stored = [numpy_helper.from_array(np.array(value), name) for name, value in weights.items()]
    graph = helper.make_graph(nodes, "g", [x], [y], stored)
    opset = helper.make_opsetid("", 17)
    model = helper.make_model(graph, opset_imports=[opset], ir_version=8)
    save_imported(model, folder)


def verified(folder, compute, nodes=(), given=None, signature=SIGNATURE, **weights):
    """Verify a function as if it were a build of twice its input."""
    save(folder, nodes or [helper.make_node("Add", ["x", "x"], ["y"])], **weights)
    build = create_autospec(ContainedBuild, instance=True)
    build.signature, build.rounded, build.short = signature, (), None

    def call(arrays, *, generic=False):
        with np.errstate(all="ignore"):  # huge numbers
            return {"y": compute(arrays["x"], generic)}

    build.side_effect = call
    return verify_build(build, folder, Verify(reference="onnx"), folder, given)


def test_likely_sizes_have_all_cases_and_others_one(tmp_path):
    found = verified(tmp_path, lambda x, _: x + x)
    likely = [case for case in found.cases if case.sizes == {"batch": 8}]
    assert [case.name for case in likely if not case.generic] == [
        "random-0", "random-1", "random-2", "zeros", "ones", "large", "small", "negative",
    ]  # fmt: skip
    assert [case.name for case in likely if case.generic] == ["random-0"]
    others = [case for case in found.cases if case.sizes != {"batch": 8}]
    assert {case.name for case in others} == {"random-0"}
    assert {1, 40} <= {case.sizes["batch"] for case in others}
    assert {tuple(case.sizes.items()) for case in found.special} == {(("batch", 8),)}
    assert f"{len(found.cases)} cases at {found.sizes} sizes" in found.summary()
    assert found.sizes == 1 + len(others)


def wrong(x, generic):
    return x + x + (x.shape[0] == 40)


def wrong_generic(x, generic):
    return x + x + generic


def short(x, generic):
    return (x + x)[: 16 if x.shape[0] > 16 else None]


def fails(x, generic):
    if x.shape[0] == 1:
        raise StageError("the compiled model failed: no room")
    return x + x


@each_row(
    "compute, said",
    [
        (wrong, r"output 'y' is wrong on case 'random-0' with batch = 40: 160 of 160 values"),
        (wrong_generic, r"'random-0' with batch = 8 in the library for every size: 32 of 32"),
        (short, r"with batch = \d+: its shape is \[16, 4\], the reference's is \[\d+, 4\]"),
        (fails, r"with batch = 1: .*the compiled model failed: no room"),
        (lambda x, _: 0 * x, r"on case '\w+(-\d)?' with batch = 8: "),
    ],
)
def test_the_size_that_is_wrong_is_named(tmp_path, compute, said):
    with pytest.raises(GateError, match=said):
        verified(tmp_path, compute)


@pytest.mark.parametrize(
    ("stated", "said"),
    [
        ({"ranges": ((1, 39), None)}, r"output 'y' is \[40, 4\], and .* state \[1 to 39, 4\]"),
        ({"ranges": ((2, 40), None)}, r"output 'y' is \[1, 4\], and .* state \[2 to 40, 4\]"),
        ({"dimensions": ("batch + 1", "")}, r"output 'y' is \[8, 4\], and .* state \[9, 4\]"),
        ({"ranges": ((1, 40), None)}, None),
        ({}, None),
    ],
)
def test_a_size_that_a_package_would_state_wrongly_fails_the_build(tmp_path, stated, said):
    y = Port.model_validate({"name": "y", "shape": (-1, 4), "dtype": "float32", **stated})
    signature = SIGNATURE.model_copy(update={"outputs": (y,)})
    expected = pytest.raises(GateError, match=said) if said else nullcontext()
    with expected:
        verified(tmp_path, lambda x, _: x + x, signature=signature)


def test_a_size_at_which_the_model_itself_can_not_run_is_told(tmp_path):
    """An even batch is folded to half of its rows and back."""
    nodes = [helper.make_node("Reshape", ["x", "to"], ["r"]),
             helper.make_node("Reshape", ["r", "back"], ["y"])]  # fmt: skip
    with pytest.raises(ModelError, match=r"onnx with batch = 1 cannot run the model: .*multiple"):
        verified(tmp_path, lambda x, _: x, nodes, to=[-1, 8], back=[-1, 4])


def test_real_inputs_have_their_own_sizes(tmp_path):
    asked = []

    def compute(x, generic):
        asked.append((x.shape[0], generic))
        return x + x

    np.savez(tmp_path / "a.npz", x=np.ones((5, 4), "float32"))
    found = verified(tmp_path, compute, given={"a.npz": tmp_path / "a.npz"})
    assert [case.sizes for case in found.cases if case.name == "a.npz"] == [{"batch": 5}]
    assert (5, False) in asked
    np.savez(tmp_path / "b.npz", x=np.ones((41, 4), "float32"))
    with pytest.raises(ConfigError, match=r"dimension 0 \(batch\) is 41, which is not from 1 to"):
        verified(tmp_path, compute, given={"b.npz": tmp_path / "b.npz"})
