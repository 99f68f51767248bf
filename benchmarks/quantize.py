"""Pipelines' networks in bytes: `python benchmarks/quantize.py FOLDER [PIPELINES]`.

Takes each network with its weights, as stage *import* leaves it, through onnxruntime's static
quantizer: QuantizeLinear and DequantizeLinear around each operator, weights per channel,
calibrated on drawn inputs. Activations are unsigned bytes, signed ones with `--signed`;
transformers are quantized at their matrix products alone, as is usual. Leaves
FOLDER/NAME_int8.onnx (or NAME_s8.onnx) and a pipeline file beside each, for `race.py`.
"""

import argparse
import logging
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import onnx
import onnx.version_converter

import autopipe
from autopipe.artifacts.model import ImportedModel
from autopipe.config.load import load
from autopipe.verification.inputs import draw_inputs
from autopipe.verification.limits import find_input_limits

CALIBRATION: Final = 4
"""Drawn inputs that ranges are taken from."""
OPSET: Final = 17
"""The first with scales per channel is 13."""
PRODUCTS: Final = ("bert", "minilm", "transformer", "encoder")
"""Networks quantized at their matrix products alone."""
DEFAULT: Final = ("resnet18", "mobilenet_v2", "squeezenet", "minilm")
_SMALL: Final = """\
version: 1
name: {name}
model:
  path: {name}.onnx
layout:
  conv2d: [NHWC, HWIO]
"""


class Drawn:
    """Inputs for the calibration, one after the other, as onnxruntime's quantizer asks for them."""

    def __init__(self, folder: Path) -> None:
        ports = ImportedModel.read(folder).inputs
        limits = find_input_limits(folder, ports)
        self._cases: Iterator[dict[str, Any]] = (
            draw_inputs(ports, limits, (7, seed)) for seed in range(CALIBRATION)
        )

    def get_next(self) -> dict[str, Any] | None:
        """Return the next one, or None after the last."""
        return next(self._cases, None)


def main() -> None:
    """Quantize what is asked for."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("pipelines", nargs="*", type=Path)
    parser.add_argument("--signed", action="store_true", help="signed activations")
    options = parser.parse_args()
    os.environ["ORT_DISABLE_TELEMETRY"] = "1"
    options.folder.mkdir(parents=True, exist_ok=True)
    paths = options.pipelines or [Path("pipelines", f"{name}.yaml") for name in DEFAULT]
    for path in paths:
        quantize(path, options.folder, signed=options.signed)


def quantize(path: Path, folder: Path, *, signed: bool) -> None:
    """Quantize the network of one pipeline, and write a pipeline file for it."""
    import onnxruntime
    from onnxruntime.quantization import QuantFormat, QuantType, quantize_static

    logging.disable(logging.WARNING)
    onnxruntime.set_default_logger_severity(3)

    name = f"{load(path).name}_{'s8' if signed else 'int8'}"
    with tempfile.TemporaryDirectory() as store:
        found = autopipe.run(path, store=Path(store), until="import")
        imported = found["import"].path
        model = onnx.version_converter.convert_version(
            onnx.load(imported / "reference.onnx"), OPSET
        )
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
    (folder / f"{name}.yaml").write_text(_SMALL.format(name=name), encoding="utf-8")
    print(folder / f"{name}.yaml", flush=True)


if __name__ == "__main__":
    main()
