import subprocess
import sys
from pathlib import Path

import pytest

import autopipe
from autopipe.api.publish import publish_package
from autopipe.errors import StoreError


def test_public_names() -> None:
    assert autopipe.__all__ == [
        "auto_schedule", "gradient", "hardware", "load", "load_scheduled", "open_package", "plan",
        "relax_gradient", "run",
    ]  # fmt: skip
    assert all(callable(getattr(autopipe, name)) for name in autopipe.__all__)
    with pytest.raises(AttributeError, match="no attribute 'tune'"):
        autopipe.tune  # noqa: B018
    assert dir(autopipe) == autopipe.__all__


def test_importing_autopipe_imports_nothing_heavy() -> None:
    program = "import sys, autopipe; print({'pydantic', 'numpy', 'tvm'} & sys.modules.keys())"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)
    assert done.stdout == b"set()\n"


@pytest.fixture
def artifact(tmp_path: Path) -> Path:
    folder = tmp_path / "object"
    folder.mkdir()
    (folder / "demo.tar").write_text("package")
    return folder


@pytest.mark.fault("A11")
def test_a_package_replaces_what_a_link_pointed_to(artifact: Path, tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.write_text("")
    output = tmp_path / "out"
    output.mkdir()
    (output / "demo.tar").symlink_to(precious)
    assert publish_package(artifact, output).read_text() == "package"
    assert precious.read_text() == ""
    assert [path.name for path in output.iterdir()] == ["demo.tar"]


@pytest.mark.fault("A11")
def test_an_output_that_is_a_file_is_a_store_error(artifact: Path, tmp_path: Path) -> None:
    (tmp_path / "out").write_text("")
    with pytest.raises(StoreError, match="out"):
        publish_package(artifact, tmp_path / "out")
