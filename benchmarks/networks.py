"""Networks for `race.py`, each with a pipeline file: `python benchmarks/networks.py KIND FOLDER`.

int8         networks of pipelines (`int8 FOLDER PIPELINES`) by onnxruntime's static quantizer:
             QuantizeLinear and DequantizeLinear around each operator, weights per channel,
             calibrated on drawn inputs; activations are uint8, int8 with `--signed`.
             Transformers are quantized at their matrix products alone, as is usual
dense        three dense layers of 1024, 4096, 4096 and 1000 that take `--rows`, with float32,
             with weights in bfloat16, and with products in bfloat16, which a processor with
             AVX512_BF16 computes: many rows are bound by arithmetic, one by memory
recurrent    LSTM and GRU layers by hidden units, steps, batch and directions, as PyTorch
             exports them; the input has as many numbers as there are hidden units
"""

import argparse
import itertools
import logging
import os
import tempfile
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

OPSET: Final = 17
"""The first with scales per channel is 13."""
CALIBRATION: Final = 4
"""Drawn inputs that ranges are taken from."""
PRODUCTS: Final = ("bert", "minilm", "transformer", "encoder")
"""Networks quantized at their matrix products alone."""
DEFAULT: Final = ("resnet18", "mobilenet_v2", "squeezenet", "minilm")
SIZES: Final = (1024, 4096, 4096, 1000)
"""Values of a row before, between and after the dense layers."""
DENSE: Final = {
    "dense_float32": "",
    "dense_bfloat16": "numerics: {weights: bfloat16}\n",
    "dense_products": "numerics: {compute: bfloat16}\n",
}
"""The section of each pipeline file of the dense layers."""
GATES: Final = {"LSTM": 4, "GRU": 3}
LAYERS: Final = (
    *itertools.product(("LSTM",), (64, 128, 256, 512), (1, 32, 256), (1, 8), (1, 2)),
    *itertools.product(("GRU",), (64, 256), (32,), (1, 8), (1, 2)),
)
"""Recurrent layers: kind, hidden units, steps, batch and directions."""


def main() -> None:
    """Write the networks of a kind."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("kind", choices=("int8", "dense", "recurrent"))
    parser.add_argument("folder", type=Path)
    parser.add_argument("pipelines", nargs="*", type=Path, help="whose networks are quantized")
    parser.add_argument("--signed", action="store_true", help="int8 activations")
    parser.add_argument("--rows", type=int, default=1, help="rows that dense layers take")
    options = parser.parse_args()
    os.environ["ORT_DISABLE_TELEMETRY"] = "1"
    options.folder.mkdir(parents=True, exist_ok=True)
    if options.kind == "dense":
        write_dense(options.folder, options.rows)
    elif options.kind == "recurrent":
        for layer in LAYERS:
            write_recurrent(options.folder, *layer)
    else:
        default = [Path("pipelines", f"{name}.yaml") for name in DEFAULT]
        for path in options.pipelines or default:
            quantize(path, options.folder, signed=options.signed)


def write_pipeline(folder: Path, name: str, model: str, section: str = "") -> None:
    """Write the pipeline file of a model."""
    text = f"version: 1\nname: {name}\nmodel: {{path: {model}}}\n{section}"
    (folder / f"{name}.yaml").write_text(text, encoding="utf-8")
    print(folder / f"{name}.yaml", flush=True)


def save_model(
    path: Path,
    nodes: list[onnx.NodeProto],
    weights: dict[str, Any],
    **ports: tuple[int, ...] | None,
) -> None:
    """Write a model of one input, the first port, and of outputs, the other ones."""
    infos = [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in ports.items()]
    tensors = [numpy_helper.from_array(array, name) for name, array in weights.items()]
    graph = helper.make_graph(nodes, path.stem, infos[:1], infos[1:], tensors)
    opset = helper.make_opsetid("", OPSET)
    onnx.save(helper.make_model(graph, opset_imports=[opset], ir_version=8), path)


def write_dense(folder: Path, rows: int) -> None:
    """Write the dense layers, with a Relu between two of them."""
    random = np.random.default_rng(0)
    nodes, weights, value = [], {}, "x"
    for place, (before, after) in enumerate(pairwise(SIZES)):
        scale = np.float32((2 / before) ** 0.5)  # or rows would grow from layer to layer
        weights[f"w{place}"] = random.standard_normal((before, after), "f") * scale
        nodes.append(helper.make_node("MatMul", [value, f"w{place}"], [value := f"y{place}"]))
        if after != SIZES[-1]:
            nodes.append(helper.make_node("Relu", [value], [value := f"r{place}"]))
    ports = {"x": (rows, SIZES[0]), value: (rows, SIZES[-1])}
    save_model(folder / "dense.onnx", nodes, weights, **ports)
    for name, section in DENSE.items():
        write_pipeline(folder, name, "dense.onnx", section)


def write_recurrent(  # noqa: PLR0913, PLR0917 - a row of `LAYERS`
    folder: Path, kind: str, hidden: int, steps: int, batch: int, directions: int
) -> None:
    """Write one recurrent layer."""
    random = np.random.default_rng(0)
    columns = GATES[kind] * hidden
    shapes = {
        "W": (directions, columns, hidden),
        "R": (directions, columns, hidden),
        "B": (directions, 2 * columns),
    }
    weights = {
        name: random.uniform(-1, 1, shape).astype("float32") / np.float32(hidden**0.5)
        for name, shape in shapes.items()
    }
    after: dict[str, Any] = {"linear_before_reset": 1} if kind == "GRU" else {}
    node = helper.make_node(
        kind, ["X", *shapes], ["Y", "Y_h"], hidden_size=hidden,
        direction="bidirectional" if directions > 1 else "forward", **after,
    )  # fmt: skip
    name = f"{kind.lower()}_{hidden}_{steps}x{batch}{'_both' if directions > 1 else ''}"
    ports: dict[str, Any] = {"X": (steps, batch, hidden), "Y": None, "Y_h": None}
    save_model(folder / f"{name}.onnx", [node], weights, **ports)
    write_pipeline(folder, name, f"{name}.onnx")


class Drawn:
    """Inputs for the calibration, one after the other, as onnxruntime's quantizer asks for them."""

    def __init__(self, folder: Path) -> None:
        from autopipe.artifacts.model import ImportedModel
        from autopipe.verification.inputs import draw_inputs
        from autopipe.verification.limits import find_input_limits

        ports = ImportedModel.read(folder).inputs
        limits = find_input_limits(folder, ports)
        self._cases: Iterator[dict[str, Any]] = (
            draw_inputs(ports, limits, (7, seed)) for seed in range(CALIBRATION)
        )

    def get_next(self) -> dict[str, Any] | None:
        """Return the next one, or None after the last."""
        return next(self._cases, None)


def quantize(path: Path, folder: Path, *, signed: bool) -> None:
    """Quantize the network of one pipeline, with its weights as stage *import* leaves them."""
    import onnxruntime
    from onnx import version_converter
    from onnxruntime.quantization import QuantFormat, QuantType, quantize_static

    import autopipe
    from autopipe.config.load import load

    logging.disable(logging.WARNING)
    onnxruntime.set_default_logger_severity(3)
    name = f"{load(path).name}_{'s8' if signed else 'int8'}"
    with tempfile.TemporaryDirectory() as store:
        imported = autopipe.run(path, store=Path(store), until="import")["import"].path
        model = version_converter.convert_version(onnx.load(imported / "reference.onnx"), OPSET)
        quantize_static(
            model,
            folder / f"{name}.onnx",
            Drawn(imported),
            quant_format=QuantFormat.QDQ,
            op_types_to_quantize=["MatMul", "Gemm"] if path.stem in PRODUCTS else None,
            per_channel=True,
            activation_type=QuantType.QInt8 if signed else QuantType.QUInt8,
            weight_type=QuantType.QInt8,
        )
    write_pipeline(folder, name, f"{name}.onnx", "layout: {conv2d: [NHWC, HWIO]}\n")


if __name__ == "__main__":
    main()
