"""An exported folder and onnxruntime behind the same call: what benchmarks of serving share."""

import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

Call = Callable[[Mapping[str, np.ndarray]], Any]
"""Runs a model once on inputs by name."""


def load_exported(folder: Path, threads: int, instances: int) -> Call:
    """Load a folder by its own loader."""
    sys.path.insert(0, str(folder / "python"))
    import autopipe_runtime

    model: Call = autopipe_runtime.open_package(folder, threads=threads, instances=instances)
    return model


def load_onnxruntime(model: Path, threads: int) -> Call:
    """Load a model into one session, whose calls use so many threads each."""
    import onnxruntime

    onnxruntime.set_default_logger_severity(4)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    return lambda inputs: session.run(None, inputs)
