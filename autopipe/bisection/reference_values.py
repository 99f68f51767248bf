"""Intermediate values of an ONNX model, computed by onnxruntime in a separate process."""

from collections.abc import Iterable
from pathlib import Path

from autopipe.errors import StageError, find_first_line
from autopipe.host.onnx_session import open_session
from autopipe.processes import call
from autopipe.store import arrays
from autopipe.verification.reference import EXACT_BYTES, MODEL

_WEIGHTS_FOLDER = "session.model_external_initializers_file_folder_path"
"""Folder of external weights, for a model that is passed as bytes."""


def compute_values(imported: Path, inputs: Path, names: Iterable[str], out: Path) -> None:
    """Compute intermediate values of a model, and write the tensors among them as safetensors.

    `imported` is the artifact of *import*; `inputs` is a safetensors file. Raises StageError where
    onnxruntime refuses the model.
    """
    request = {
        "imported": str(imported.absolute()), "inputs": str(inputs), "names": sorted(names),
        "out": str(out),
    }  # fmt: skip
    try:
        call.run_module(__name__, request)
    except StageError as error:
        raise StageError(f"onnxruntime does not compute the values inside: {error}") from None


def _answer_request(request: call.Answer) -> call.Answer:
    import numpy as np
    import onnx
    import onnxruntime
    from safetensors.numpy import load_file

    folder = Path(request["imported"])
    model = onnx.load(str(folder / MODEL), load_external_data=False)
    inner_names = {name for node in model.graph.node for name in node.output}
    inner_names -= {value.name for value in model.graph.output}
    output_names = [name for name in request["names"] if name in inner_names]
    model.graph.output.extend(onnx.ValueInfoProto(name=name) for name in output_names)
    options = onnxruntime.SessionOptions()
    options.add_session_config_entry(*EXACT_BYTES)
    options.add_session_config_entry(_WEIGHTS_FOLDER, str(folder))
    try:
        session = open_session(model.SerializeToString(), options)
        names = [output.name for output in session.get_outputs()]
        results = session.run(names, load_file(request["inputs"]))
    except Exception as error:  # onnxruntime's errors have no public base
        raise StageError(find_first_line(error)) from error
    values = {
        name: np.ascontiguousarray(value).reshape(value.shape)
        for name, value in zip(names, results, strict=True)
        if isinstance(value, np.ndarray) and value.dtype.kind in "fiub"
    }
    arrays.save(values, Path(request["out"]))
    return {}


if __name__ == "__main__":
    call.serve_request(_answer_request)
