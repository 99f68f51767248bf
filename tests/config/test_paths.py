import importlib
import sys

import pytest

from autopipe.config.model import Model
from autopipe.config.paths import find_model_path
from autopipe.errors import ConfigError


@pytest.fixture
def base(tmp_path):
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "resnet50.onnx").write_bytes(b"model")
    return tmp_path


@pytest.fixture
def package(tmp_path, monkeypatch):
    """An installed package that fails when it is imported."""
    folder = tmp_path / "site" / "zoo_for_tests"
    (folder / "light").mkdir(parents=True)
    (folder / "__init__.py").write_text("raise RuntimeError")
    (folder / "light" / "light_resnet50.onnx").write_bytes(b"model")
    (tmp_path / "site" / "secret.onnx").write_bytes(b"secret")
    monkeypatch.syspath_prepend(tmp_path / "site")
    importlib.invalidate_caches()
    return folder


def test_a_path_starts_at_the_folder_of_the_pipeline_file(base):
    path = find_model_path(Model(path="models/resnet50.onnx"), base)
    assert path == base / "models" / "resnet50.onnx"


def test_the_path_is_absolute(base, monkeypatch):
    monkeypatch.chdir(base)
    assert find_model_path(Model(path="resnet50.onnx"), type(base)("models")).is_absolute()


def test_an_absolute_path_is_taken_as_it_is(base):
    absolute = base / "models" / "resnet50.onnx"
    assert find_model_path(Model(path=str(absolute)), base / "elsewhere") == absolute


def test_a_file_inside_a_package_is_found_without_importing_it(package, tmp_path):
    path = find_model_path(Model(path="pkg:zoo_for_tests/light/light_resnet50.onnx"), tmp_path)
    assert path == package / "light" / "light_resnet50.onnx"
    assert "zoo_for_tests" not in sys.modules


@pytest.mark.parametrize(
    ("path", "says"),
    [
        ("models/resnet5O.onnx", "is not in .*models; did you mean `resnet50.onnx`\\?"),
        ("models/unlike.pb", "is not in .*models$"),
        ("modles/resnet50.onnx", "nor does the folder .*modles"),
        ("models", "which is not a file"),
        ("a\0b", "is not in"),
        ("x" * 5000, "cannot be read"),
        ("pkg:", "is not pkg:package/path"),
        ("pkg:zoo_for_tests", "is not pkg:package/path"),
        ("pkg:zoo.for/tests", "is not pkg:package/path"),
        ("pkg:../secret.onnx", "is not pkg:package/path"),
        ("pkg:zoo_for_tests/../secret.onnx", "leads out of the package"),
        ("pkg:zoo_for_tests/light/../../secret.onnx", "leads out of the package"),
        ("pkg:zoo_for_tests//etc/passwd", "leads out of the package"),
        ("pkg:no_such_package/a.onnx", "needs the Python package no_such_package"),
        ("pkg:__main__/a.onnx", "needs the Python package __main__"),
        ("pkg:zoo_for_tests/light/light_resnet.onnx", "did you mean `light_resnet50.onnx`"),
        ("pkg:zoo_for_tests/light", "which is not a file"),
    ],
)
@pytest.mark.usefixtures("package")
def test_a_model_that_is_not_there_is_named(base, path, says):
    with pytest.raises(ConfigError, match=says) as caught:
        find_model_path(Model(path=path), base)
    assert str(caught.value).startswith("model.path: ")
    assert str(caught.value).isprintable()
