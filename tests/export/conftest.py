"""A small package, and the folder that it is exported to: compiled once, copied for each test."""

import shutil
from pathlib import Path

import pytest

from autopipe.export.folder import export_package
from tests.support.shared import once


@pytest.fixture
def folder(package, tmp_path, tmp_path_factory):
    made = once(tmp_path_factory, "exported", lambda to: export_package(package, to / "small"))
    return Path(shutil.copytree(made / "small", tmp_path / "small"))
