"""Versions of installed distributions."""

from importlib import metadata

import pytest

from autopipe.host.distributions import find_installed_version


@pytest.mark.parametrize("name", ["autopipe", "apache-tvm", "numpy", "pydantic"])
def test_the_version_is_that_of_the_metadata(name):
    assert find_installed_version(name) == metadata.version(name)


def test_a_distribution_that_is_not_installed_has_no_version():
    assert find_installed_version("no-such") is None


def test_only_the_header_is_read(tmp_path, monkeypatch):
    folder = tmp_path / "sample_wheel-1.5.dist-info"
    folder.mkdir()
    text = "Metadata-Version: 2.1\nName: sample-wheel\nVersion: 1.5\n\nVersion: 2.0\n"
    (folder / "METADATA").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    assert find_installed_version("sample-wheel") == "1.5"


def test_an_egg_has_a_version_too(tmp_path, monkeypatch):
    folder = tmp_path / "sample_egg.egg-info"
    folder.mkdir()
    (folder / "PKG-INFO").write_text("Metadata-Version: 2.1\nName: sample-egg\nVersion: 1.6\n")
    monkeypatch.syspath_prepend(tmp_path)
    assert find_installed_version("sample-egg") == "1.6"
