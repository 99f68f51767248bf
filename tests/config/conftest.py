"""A pipeline file to break, and a way to see what is said about it."""

import pytest

from autopipe.config.load import load
from autopipe.errors import ConfigError

GOOD = """\
version: 1
name: resnet
model:
  path: resnet.onnx
  inputs: {data: {shape: [1, 3, 224, 224], dtype: float32}}
tuning:
  budget: {trials: 1000, time: 30m}
gates: {max_slowdown: {onnxruntime: 1.5}}
"""


@pytest.fixture
def file(tmp_path):
    return tmp_path / "pipeline.yaml"


@pytest.fixture
def read(file):
    """Load a text, with overrides."""

    def read(text, *overrides):
        file.write_bytes(text if isinstance(text, bytes) else text.encode())
        return load(file, overrides)

    return read


@pytest.fixture
def refused(read, file):
    """Return the lines of the refusal of a text, without the folder of the file."""

    def refused(text, *overrides):
        with pytest.raises(ConfigError) as caught:
            read(text, *overrides)
        return str(caught.value).replace(str(file), "f").splitlines()

    return refused
