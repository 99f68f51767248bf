"""Write a first pipeline file for a model."""

import json
import math
import os
import re
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from autopipe.api import dynamic_sizes as size_proposals
from autopipe.api import sizes
from autopipe.api.sizes import InputSizes
from autopipe.api.tried_sizes import Shapes, try_proposals
from autopipe.config import PIPELINE_SUFFIXES
from autopipe.config.dimension import Sizes, evaluate_size
from autopipe.config.model import OPEN, Input
from autopipe.config.paths import PACKAGE, locate_model_file
from autopipe.errors import ConfigError, ModelError, convert_os_errors

if TYPE_CHECKING:
    from autopipe.compiler.frontends.onnx.facts.outline import ModelOutline

_LAYOUTS = {
    3: "conv1d: [NWC, WIO]",
    4: "conv2d: [NHWC, HWIO]",
    5: "conv3d: [NDHWC, DHWIO]",
}

_LONGEST: Final = 60
"""Characters of a dimension's name."""
_MISFIT: Final = ("(op_type:", "has a negative dimension")
"""Parts of errors about nodes and values with incompatible shapes."""
_TRIALS: Final = 32
"""Trials of each layer: one batch of proposals."""
_RATE: Final = 2
"""Trials a second, first round and confirmation included, on two cores of a server."""


@dataclass(frozen=True, slots=True)
class Starter:
    """A pipeline file that was written, and the sizes that remain to be filled in."""

    path: Path
    inputs: Mapping[str, InputSizes]
    """The sizes of each input of the model."""
    closed: Mapping[str, str]
    """Notes on the dynamic dimensions of which the model accepts one size only, by name."""

    @property
    def open(self) -> dict[str, InputSizes]:
        """Inputs with an unknown size."""
        return {name: known for name, known in self.inputs.items() if known.open}


def write_pipeline_file(
    model: str,
    output: Path | None = None,
    *,
    shapes: Sequence[str] = (),
    dynamic_sizes: bool = False,
    overwrite: bool = False,
) -> Starter:
    """Write a pipeline file for a model: the path of an ONNX file, or `pkg:package/path`.

    It is named after the model where there is no `output`. `shapes` are like `x=1,3,640,640`. With
    `dynamic_sizes`, all other dynamic dimensions stay dynamic, within proposed ranges. Raises
    ConfigError if the file exists or a shape does not fit, ModelError for an unusable model.
    """
    path = locate_model_file(model, Path())
    if path.suffix in PIPELINE_SUFFIXES:
        raise ConfigError(f"{model}: a pipeline file, and no model; next: autopipe run {model}")
    output = output or Path(f"{_to_pipeline_name(path)}.yaml")
    if output.exists() and not (overwrite and output.is_file()):  # a pipe has no end
        raise ConfigError(
            f"{output}: is there already; say --overwrite, or choose another --output"
        )
    model_path = model if model.startswith(PACKAGE) else os.path.relpath(path, output.parent)
    name = _to_pipeline_name(output)
    inputs, notes, text = draft_pipeline(
        path, model_path, shapes, name=name, dynamic_sizes=dynamic_sizes
    )
    mode = "w" if overwrite else "x"
    with convert_os_errors(ConfigError, output), output.open(mode, encoding="utf-8") as file:
        file.write(text)
    return Starter(output, inputs, notes)


def draft_pipeline(
    model: Path, model_path: str, shapes: Sequence[str], *, name: str, dynamic_sizes: bool
) -> tuple[Mapping[str, InputSizes], Mapping[str, str], str]:
    """Draft the pipeline file of a model.

    Returns the sizes of its inputs, a note on each dimension that has one size only, and the text.
    `model_path` is the model's path in that file, `name` the pipeline's. Unknown sizes are marked,
    except the batch, assumed to be 1; with `dynamic_sizes` both are named dimensions. Raises
    ModelError for an unusable file, ConfigError for a wrong shape.
    """
    from autopipe.compiler.frontends.onnx.facts import outline

    declared_shapes = outline.read_declared_shapes(model)
    known_sizes = sizes.resolve_sizes(
        declared_shapes, sizes.parse_shapes(shapes, list(declared_shapes))
    )
    inputs = size_proposals.name_dynamic_sizes(known_sizes) if dynamic_sizes else known_sizes
    try:
        model_outline = _read_model_outline(model, inputs)
    except ModelError as error:
        misfit = any(words in str(error) for words in _MISFIT)
        raise ModelError(f"{error}{_suggest_shape(inputs, shapes) if misfit else ''}") from error
    proposals = _propose_sizes(model, inputs, known_sizes, model_outline)
    only = {name: one.dimension.first for name, one in proposals.items() if one.is_one_size}
    notes = {name: _explain_closed_size(model, inputs, proposals, name) for name in only}
    inputs = {name: known.at(only) for name, known in inputs.items()}
    lines = [
        *("version: 1", f"name: {name}"),
        *("model:", f"  path: {_to_yaml_string(model_path)}", "  inputs:"),
        *(f"    # {_replace_unprintable(note)}" for note in notes.values()),
        *(
            line
            for one in model_outline.inputs
            for line in _list_input_lines(one.name, inputs[one.name], one.dtype)
        ),
        *_list_dimension_lines({name: one for name, one in proposals.items() if name not in only}),
    ]
    if model_outline.constant_weights:
        lines.append("  weights: {synthesize: he_normal, seed: 0}  # the file has none of its own")
    layouts = [_LAYOUTS[rank] for rank in sorted(model_outline.convolutions & _LAYOUTS.keys())]
    if layouts:
        lines += ["layout:", *(f"  {layout}" for layout in layouts)]
    lines += ["tasks: {allow_empty: true}  # a small model may have nothing worth tuning"]
    lines += _list_tuning_lines(model_outline.layers)
    return inputs, notes, "\n".join(lines) + "\n"


def _propose_sizes(
    model: Path,
    inputs: Mapping[str, InputSizes],
    known_sizes: Mapping[str, InputSizes],
    outline: "ModelOutline",
) -> Mapping[str, size_proposals.SizeProposal]:
    """Propose ranges of dynamic dimensions; `known_sizes` are the inputs before naming them."""
    if not any(known.names for known in inputs.values()):
        return {}
    proposals = size_proposals.propose_dimensions(inputs, known_sizes, outline)
    proposals = size_proposals.fit_proposals(proposals, partial(_can_take_sizes, model, inputs))
    dtypes = {value.name: value.dtype for value in outline.inputs}
    return try_proposals(proposals, model, _list_shapes(inputs), dtypes)


def _explain_closed_size(
    model: Path,
    inputs: Mapping[str, InputSizes],
    proposals: Mapping[str, size_proposals.SizeProposal],
    name: str,
) -> str:
    """Explain that the model accepts only one size of a dimension."""
    only, step = proposals[name].dimension.first, proposals[name].dimension.multiple
    likely = {other: one.dimension.likely[0] for other, one in proposals.items()}
    why = (
        _find_size_refusal(model, inputs, {**likely, name: only + step})
        or "onnxruntime ends in an error"
    )
    return f"{name} is {only} here: at {only + step}, {' '.join(why.split())}"


def _list_dimension_lines(proposals: Mapping[str, size_proposals.SizeProposal]) -> Iterator[str]:
    """Yield the lines of section `model.dimensions`."""
    if proposals:
        yield "  # proposals: one package takes every size from min to max, and is fastest at"
        yield "  # the likely ones; a size may be a number in shape instead"
        yield "  dimensions:"
        yield from (f"    {name}: {one.text}" for name, one in proposals.items())


def _read_model_outline(model: Path, inputs: Mapping[str, InputSizes]) -> "ModelOutline":
    from autopipe.compiler.frontends.onnx.facts.outline import read_outline

    if any(None in known.shape for known in inputs.values()):
        return read_outline(model, None)
    shapes = {
        name: tuple(size for size in known.shape if size is not None)
        for name, known in inputs.items()
    }
    return read_outline(model, {name: Input(shape=shape) for name, shape in shapes.items()})


def _can_take_sizes(model: Path, inputs: Mapping[str, InputSizes], at: Sizes) -> bool:
    """Whether a model accepts certain sizes of its dynamic dimensions."""
    return _find_size_refusal(model, inputs, at) is None


def _find_size_refusal(model: Path, inputs: Mapping[str, InputSizes], at: Sizes) -> str | None:
    """Return the reason why a model refuses certain sizes, or None if it accepts them."""
    from autopipe.compiler.frontends.onnx.facts.outline import find_refusal

    shapes = {
        name: tuple(
            evaluate_size(known.names[axis], at) if size is None else size
            for axis, size in enumerate(known.shape)
        )
        for name, known in inputs.items()
    }
    return find_refusal(model, {name: Input(shape=shape) for name, shape in shapes.items()})


def _list_shapes(inputs: Mapping[str, InputSizes]) -> Shapes:
    """Return the shapes of inputs with the names of their dynamic dimensions."""
    return {
        name: tuple(known.names[axis] if size is None else size
                    for axis, size in enumerate(known.shape))
        for name, known in inputs.items()
    }  # fmt: skip


def _suggest_shape(inputs: Mapping[str, InputSizes], shapes: Sequence[str]) -> str:
    """Suggest other sizes for a model that is refused with assumed or given sizes."""
    if any(known.open for known in inputs.values()):
        return ""
    if any(known.assumed for known in inputs.values()):
        return "; a batch of 1 is assumed, --shape gives another size"
    return "; are these sizes that the model takes?" if shapes else ""


def _list_input_lines(name: str, sizes: InputSizes, dtype: str) -> Iterator[str]:
    if sizes.assumed:
        yield f"    # assumed: the batch, {format_dimensions(sizes.assumed)}, is 1"
    if sizes.open:
        yield f'    # write a size for each "{OPEN}": {format_dimensions(sizes.open)}'
    shape = ", ".join(
        sizes.names.get(axis, f'"{OPEN}"') if size is None else str(size)
        for axis, size in enumerate(sizes.shape)
    )
    yield f"    {_to_yaml_string(name)}: {{shape: [{shape}], dtype: {dtype}}}"


def format_dimensions(names_by_axis: Mapping[int, str]) -> str:
    """Format dimensions for comments and messages: `dimension 2 (height), dimension 3 (width)`."""
    texts = (
        f"dimension {axis}" + (f" ({name[:_LONGEST]})" if name else "")
        for axis, name in names_by_axis.items()
    )
    return _replace_unprintable(", ".join(texts))


def _list_tuning_lines(layers: int) -> list[str]:
    trials = _TRIALS * max(1, layers)
    minutes = math.ceil(trials / _RATE / 60)
    return [
        "tuning:",
        f"  # different layers: {layers}, with {_TRIALS} trials each, at {_RATE} a second; more",
        "  # trials find faster schedules, and `--set tuning=null` builds without any",
        f"  budget: {{trials: {trials}, time: {minutes}m}}",
    ]


def _to_pipeline_name(path: Path) -> str:
    """Derive the name of a pipeline from that of a file, without accents."""
    letters = unicodedata.normalize("NFKD", path.stem)
    plain = "".join(c for c in letters if not unicodedata.combining(c))
    return re.sub(r"[^A-Za-z0-9._-]+", "-", plain).lstrip("._-")[:100] or "model"


def _to_yaml_string(text: str) -> str:
    """Format text as a YAML string: a JSON string without characters that YAML forbids."""
    return json.dumps(text, ensure_ascii=not text.isprintable())


def _replace_unprintable(text: str) -> str:
    """Replace unprintable characters, which could end a comment."""
    return "".join(char if char.isprintable() else "?" for char in text)
