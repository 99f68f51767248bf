"""A small model as the stages *import* and *build* would leave it, compiled once a session.

Its kernel `dense` is written out, so that a test can put a wrong one, or another right one, in
its place.
"""

from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import pytest

from autopipe.environment.facet import Facet
from autopipe.pipeline.events import Event
from autopipe.pipeline.stage import Context
from autopipe.stages.package import PackageStage
from tests.artifacts.examples import library as built
from tests.artifacts.examples import library_task

TARGET: Mapping[str, object] = {
    "kind": "llvm", "mcpu": "x86-64-v2", "mattr": [], "mtriple": None, "num_cores": 2,
}  # fmt: skip

INPUTS = [
    {"name": "data/x", "shape": [4, 8], "dtype": "float32"},
    {"name": "ids", "shape": [4], "dtype": "int64"},
]
OUTPUTS = [
    {"name": "scores", "shape": [4, 8], "dtype": "float32"},
    {"name": "best", "shape": [4], "dtype": "int64"},
]

DENSE = """
for i, j in T.grid(4, 8):
    C[i, j] = T.float32(0)
    for k in range(8):
        C[i, j] = C[i, j] + A[i, k] * B[k, j]
"""

_MODULE = """
@I.ir_module
class Module:
    @T.prim_func(private=True, s_tir=True)
    def dense(
        A: T.Buffer((4, 8), "float32"),
        B: T.Buffer((8, 8), "float32"),
        C: T.Buffer((4, 8), "float32"),
    ):
{kernel}

    @R.function
    def main(
        x: R.Tensor((4, 8), "float32"),
        ids: R.Tensor((4,), "int64"),
        weight: R.Tensor((8, 8), "float32"),
        table: R.Tensor((5, 8), "float32"),
    ):
        cls = Module
        with R.dataflow():
            hidden = R.call_tir(cls.dense, (x, weight), R.Tensor((4, 8), "float32"))
            embedded = R.take(table, ids, axis=0)
            scores = R.nn.softmax(R.add(R.nn.relu(hidden), embedded), axis=-1)
            out = (scores, R.argmax(scores, axis=1))
            R.output(out)
        return out
"""


def weights() -> dict[str, np.ndarray]:
    """Return the weights of the small model."""
    generator = np.random.default_rng(7)
    return {
        "weight": generator.standard_normal((8, 8)).astype("float32"),
        "table": generator.standard_normal((5, 8)).astype("float32"),
    }


def expected(x: np.ndarray, ids: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Compute the small model with numpy."""
    known = weights()
    hidden = np.maximum(x @ known["weight"], 0) + known["table"][ids]
    powers = np.exp(hidden - hidden.max(-1, keepdims=True))
    scores = powers / powers.sum(-1, keepdims=True)
    return scores, scores.argmax(1)


def save_model(folder: Path) -> None:
    """Write the small model as a MODEL artifact."""
    from onnx import TensorProto, helper, numpy_helper

    from tests.verification.imported_onnx import save_imported

    graph = helper.make_graph(
        [
            helper.make_node("MatMul", ["data/x", "weight"], ["dense"]),
            helper.make_node("Relu", ["dense"], ["hidden"]),
            helper.make_node("Gather", ["table", "ids"], ["embedded"], axis=0),
            helper.make_node("Add", ["hidden", "embedded"], ["sum"]),
            helper.make_node("Softmax", ["sum"], ["scores"], axis=-1),
            helper.make_node("ArgMax", ["scores"], ["best"], axis=1, keepdims=0),
        ],
        "small",
        [
            helper.make_tensor_value_info("data/x", TensorProto.FLOAT, [4, 8]),
            helper.make_tensor_value_info("ids", TensorProto.INT64, [4]),
        ],
        [
            helper.make_tensor_value_info("scores", TensorProto.FLOAT, [4, 8]),
            helper.make_tensor_value_info("best", TensorProto.INT64, [4]),
        ],
        [numpy_helper.from_array(array, name) for name, array in weights().items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    described = {"name": "small", "inputs": INPUTS, "outputs": OUTPUTS}
    save_imported(model, folder, **described, weights=tuple(weights()))


def save_library(folder: Path, dense: str = DENSE) -> None:
    """Compile the small model with a kernel and write it as a LIBRARY artifact."""
    import tvm

    from autopipe.compiler import module_io

    kernel = "\n".join(" " * 8 + line for line in dense.strip().splitlines())
    module = tvm.script.from_source(_MODULE.format(kernel=kernel))
    # LLVM's optimizer takes most of the time, and nobody ships this library.
    facts = {"kind": "llvm", "mcpu": TARGET["mcpu"], "num-cores": 2, "opt-level": 0}
    target = tvm.target.Target(facts)
    tvm.compile(module, target=target).export_library(str(folder / "lib.so"))
    module_io.save_aligned_weights(weights(), folder / "weights.safetensors")
    built(
        library_task("dense", "0" * 16, engine="default", seconds=None),
        name="small", inputs=INPUTS, outputs=OUTPUTS, weights=tuple(weights()),
        versions={"tvm": "0.27", "tvm_ffi": "0.1", "llvm": "22", "linker": "g++ (x) 12"},
    ).write(folder)  # fmt: skip


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The small model as a MODEL artifact; read only."""
    folder: Path = tmp_path_factory.mktemp("model")
    save_model(folder)
    return folder


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The small model as a LIBRARY artifact; read only."""
    folder: Path = tmp_path_factory.mktemp("library")
    save_library(folder)
    return folder


@pytest.fixture
def context(tmp_path: Path, model: Path, library: Path) -> Callable[..., Context]:
    """Make contexts as the executor does; its events are appended to `events` if given."""

    def make(events: list[Event] | None = None, **inputs: Path) -> Context:
        heard: list[Event] = [] if events is None else events
        for name in ("out", "work"):
            (tmp_path / name).mkdir(exist_ok=True)
        return Context(
            inputs={"import": model, "build": library, **inputs},
            facts={
                Facet.TARGET: TARGET,
                Facet.DEVICE: {"cpu": "of the tests"},
                Facet.FRONTEND: {"onnx": "1.21.0", "numpy": "2.1.0"},
                Facet.EXTENSIONS: {"schedules-of-ours": "2.0+cpu"},
                Facet.PACKAGES: {"autopipe": "0.1.0", "numpy": "2.1.0"},
            },
            out=tmp_path / "out",
            work=tmp_path / "work",
            records=tmp_path / "records",
            emit=heard.append,
        )

    return make


@pytest.fixture
def package(context: Callable[..., Context]) -> Path:
    """The package of the model and the library."""
    ctx = context()
    PackageStage(pipeline="small", configuration={"version": 1}).run(ctx)
    return ctx.out / "small.tar"
