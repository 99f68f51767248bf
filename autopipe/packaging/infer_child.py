"""Runs a package once on arrays in files: the child of `infer`."""

from collections.abc import Sequence
from pathlib import Path
from urllib.parse import quote

import numpy as np

from autopipe import foreign
from autopipe.artifacts.signature import Signature
from autopipe.compiler.library import samples
from autopipe.config.problem import format_value
from autopipe.errors import ConfigError, convert_os_errors
from autopipe.packaging.open import open_package
from autopipe.processes import call
from autopipe.signing.signers import Signers


def answer_request(request: call.Answer) -> call.Answer:
    """Run the package of a request, and return a summary of its outputs."""
    signers = request["signers"]
    model = open_package(request["package"], signers and Signers.of(signers))
    outputs = model(read_inputs(model.signature, request["inputs"]))
    lines = []
    for name, array in outputs.items():
        line = _describe_output(name, array)
        if request["output"] is not None:
            line += f" -> {_save_output(Path(request['output']), name, array)}"
        lines.append(line)
    return {"summary": "\n".join(lines)}


def read_inputs(signature: Signature, inputs: Sequence[str]) -> dict[str, np.ndarray]:
    """Read the input arrays: all from one `.npz` file, or each from its own `.npy`."""
    if len(inputs) == 1 and inputs[0].endswith(samples.SUFFIX) and Path(inputs[0]).exists():
        path = Path(inputs[0])
        sizes = samples.read_sizes(path, signature.inputs, signature.dimensions)
        return samples.load(path, signature.at(sizes))
    files = _name_input_files([port.name for port in signature.inputs], inputs)
    return {name: _load_array(file) for name, file in files.items()}


def _name_input_files(names: Sequence[str], inputs: Sequence[str]) -> dict[str, Path]:
    files: dict[str, Path] = {}
    for text in inputs:
        name = next((name for name in names if text.startswith(f"{name}=")), None)
        if name is not None:
            file = text.removeprefix(f"{name}=")
        elif "=" in text and not Path(text).exists():
            name, _, file = text.rpartition("=")
        elif len(names) == 1:
            name, file = names[0], text
        else:
            raise ConfigError(
                f"write <name>={text}: the inputs are {', '.join(map(format_value, names))}"
            )
        if name in files:
            raise ConfigError(f"input {name!r} is given twice")
        files[name] = Path(file)
    return files


def _load_array(path: Path) -> np.ndarray:
    try:
        with convert_os_errors(ConfigError, path), foreign.open_regular_file(path) as file:
            array = np.load(file, allow_pickle=False)
    except ConfigError:
        raise
    except Exception:  # noqa: BLE001 - a header is Python, and raises what its parsers do
        # Without NumPy's reason, which proposes to load pickles for whatever it does not know.
        raise ConfigError(f"{path}: not a whole .npy or .npz file of numbers") from None
    if not isinstance(array, np.ndarray):
        raise ConfigError(f"{path}: an archive of arrays, which gives all inputs, without a name")
    return array


def _describe_output(name: str, array: np.ndarray) -> str:
    line = f"{format_value(name)}: {array.dtype} {list(array.shape)}"
    if array.size == 0:
        return line
    values = array.astype(np.float64)
    largest = [int(index) for index in np.unravel_index(int(values.argmax()), values.shape)]
    return (
        f"{line}, min {values.min():.6g}, max {values.max():.6g} at {largest}, "
        f"mean {values.mean():.6g}"
    )


def _save_output(folder: Path, name: str, array: np.ndarray) -> Path:
    path = folder / f"{quote(name, safe='')}.npy"
    with convert_os_errors(ConfigError, f"--output {path}"):
        folder.mkdir(parents=True, exist_ok=True)
        np.save(path, array, allow_pickle=False)
    return path
