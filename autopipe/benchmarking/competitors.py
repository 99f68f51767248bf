"""The reference runtimes: how each loads an ONNX model in float32 with its fastest settings.

Each runs in a separate process (`contender.py`), and its package is imported only there.
"""

import os
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Final

import numpy as np

from autopipe.errors import StageError, find_first_line
from autopipe.host.onnx_session import open_session

if TYPE_CHECKING:
    from MNN.expr import Var

Arrays = Mapping[str, np.ndarray]
Run = Callable[[], Sequence[np.ndarray]]
"""Runs a model once; the outputs are in the order of the model."""


@dataclass(frozen=True, slots=True)
class Competitor:
    """A reference runtime of benchmarks."""

    module: str
    """Name of its Python module, which is the name of its distribution as well."""
    extra: str
    """Extra of autopipe that installs it."""
    prepare: Callable[[Path, Arrays, int], Run]
    """Loads a model for these inputs and so many threads. Raises StageError, like the run, if it
    cannot run the model."""
    trusted: bool = False
    """Whether *verify* already compares builds with its outputs."""

    def obstacle(self) -> str | None:
        """Return why it is not available, or None."""
        if find_spec(self.module):
            return None
        return f"it is not installed: pip install 'autopipe[{self.extra}]'"


def _prepare_onnxruntime(model: Path, inputs: Arrays, threads: int) -> Run:
    """Load a model with the default options, which pin threads, if all processors are available."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    if threads != len(os.sched_getaffinity(0)):
        options.intra_op_num_threads = threads
    session = open_session(model, options)
    return lambda: session.run(None, inputs)


def _prepare_openvino(model: Path, inputs: Arrays, threads: int) -> Run:
    """Load a model in float32: the default is bfloat16 on processors that have it.

    Inputs and outputs are shared with it, which saves two copies.
    """
    import openvino

    options = {
        "PERFORMANCE_HINT": "LATENCY",
        "INFERENCE_NUM_THREADS": threads,
        "INFERENCE_PRECISION_HINT": "f32",
    }
    try:
        request = openvino.Core().compile_model(model, "CPU", options).create_infer_request()
        request.infer(inputs)
    except Exception as error:  # it raises RuntimeError, and others
        raise StageError(find_first_line(error)) from error

    def run() -> Sequence[np.ndarray]:
        outputs = request.infer(inputs, share_inputs=True, share_outputs=True)
        return [outputs[port] for port in range(len(outputs))]

    return run


def _prepare_mnn(model: Path, inputs: Arrays, threads: int) -> Run:
    """Load a model with precision, power and memory `high`: float32, spinning, packed weights.

    The converter is called as a function of the wheel: the command `mnnconvert` installs a package
    and uploads its arguments.
    """
    import _tools
    import MNN
    from MNN import expr, nn
    from onnx import load

    graph = load(model, load_external_data=False).graph
    weights = {tensor.name for tensor in graph.initializer}
    names = [port.name for port in graph.input if port.name not in weights]
    outputs = [port.name for port in graph.output]
    is_static = all(size.HasField("dim_value") for port in graph.input
                for size in port.type.tensor_type.shape.dim)  # fmt: skip
    options = {"backend": "CPU", "numThread": threads, **_MNN_MODES}
    with tempfile.TemporaryDirectory() as folder:
        file = str(Path(folder) / "model.mnn")
        command = ["mnnconvert", "-f", "ONNX", "--modelFile", str(model), "--MNNModel", file]
        _tools.mnnconvert([*command, "--bizCode", "autopipe"])
        if not Path(file).exists():
            raise StageError("its converter refuses the model")
        module = nn.load_module_from_file(
            file, names, outputs, runtime_manager=nn.create_runtime_manager((options,)),
            shape_mutable=not is_static, rearrange=True,
        )  # fmt: skip
    mnn_inputs = {name: _to_mnn_input(inputs[name]) for name in names}
    ports = {
        name: expr.placeholder(list(array.shape), expr.NCHW, getattr(expr, _MNN_TYPES[array.dtype]))
        for name, array in mnn_inputs.items()
    }

    def run() -> Sequence[np.ndarray]:
        for name, port in ports.items():
            port.write(mnn_inputs[name])
        results = module.forward(list(ports.values()))
        return [_to_nchw(expr, one).read() for one in results]

    if not run():
        raise StageError(f"MNN {MNN.version()} gives no outputs")
    return run


_MNN_MODES: Final = {"precision": "high", "power": "high", "memory": "high"}
_MNN_TYPES: Final = {
    np.dtype(np.float32): "float", np.dtype(np.int32): "int", np.dtype(np.uint8): "uint8",
    np.dtype(np.int8): "int8",
}  # fmt: skip


def _to_mnn_input(array: np.ndarray) -> np.ndarray:
    """Convert an input to a type of MNN: bool and int64 become int32."""
    if array.dtype in (np.int64, np.bool_):
        array = array.astype(np.int32)
    if array.dtype not in _MNN_TYPES:
        raise StageError(f"it takes no inputs of {array.dtype}")
    return array


def _to_nchw(expr: ModuleType, result: "Var") -> "Var":
    """Convert a result from the blocked layout NC4HW4 to NCHW."""
    return expr.convert(result, expr.NCHW) if result.data_format == expr.NC4HW4 else result


COMPETITORS: Final[Mapping[str, Competitor]] = {
    "onnxruntime": Competitor("onnxruntime", "onnxruntime", _prepare_onnxruntime, trusted=True),
    "openvino": Competitor("openvino", "openvino", _prepare_openvino),
    "mnn": Competitor("MNN", "mnn", _prepare_mnn),
}
"""All reference runtimes, by their names in the pipeline file."""
