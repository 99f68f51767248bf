"""The bytes of an ONNX model."""

import hashlib
import os
import re
from pathlib import Path

from autopipe import foreign
from autopipe.compiler.step_counter import count_bytes
from autopipe.errors import ModelError
from autopipe.host.copy_file import STRETCH

MAX_BYTES = 2**31 - 1
"""Maximum size of a protobuf message."""

_PICKLE = re.compile(rb"\x80[\x01-\x05][\x8a.(}\]c\x95KXq]")
_SUFFIXES = (".pt", ".pth", ".pkl", ".pickle")


def read_model_file(path: Path) -> bytes:
    """Read a model file; raises ModelError for an obviously wrong format."""
    try:
        with foreign.open_regular_file(path) as file:
            size = os.fstat(file.fileno()).st_size
            if size > MAX_BYTES:
                raise ModelError(
                    f"{size} bytes are more than one protobuf can hold "
                    f"({MAX_BYTES}); save the weights as external data"
                )
            data = file.read()
    except OSError as error:
        raise ModelError(f"{error.strerror or error}") from error
    if not data:
        raise ModelError("the file is empty")
    if path.suffix == ".py":
        raise ModelError("Python, not ONNX; a TVMScript source needs model.format: tvmscript")
    is_archive = data.startswith(b"PK\x03\x04") and b"data.pkl" in data[:4096]
    if is_archive or _PICKLE.match(data) or path.suffix in _SUFFIXES:
        raise ModelError("pickle files can run code; export the model to ONNX")
    return data


def hash_model(data: bytes) -> str:
    """Return the SHA-256 of a model file's bytes as hexadecimal digits."""
    report, digest = count_bytes("MiB of the model digested", len(data)), hashlib.sha256()
    for start in range(0, len(data), STRETCH):
        part = memoryview(data)[start : start + STRETCH]
        digest.update(part)
        report(len(part))
    return digest.hexdigest()
