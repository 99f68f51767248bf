"""The pipeline file: one frozen model per section, each in a module of its own."""

from typing import Final

PIPELINE_SUFFIXES: Final = (".yaml", ".yml")
"""Suffixes of pipeline files."""
