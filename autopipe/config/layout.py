"""Section `layout`: which memory layout each kind of op is converted to."""

from typing import Annotated

from pydantic import StringConstraints

LayoutName = Annotated[str, StringConstraints(pattern=r"^[A-Z0-9a-z]{2,10}$")]

Layout = dict[str, tuple[LayoutName, ...]]
"""Desired layouts by Relax op: `conv2d: [NHWC, HWIO]` is data, then kernel."""
