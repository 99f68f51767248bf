"""The type of paths to files of inputs."""

from typing import Annotated

from pydantic import StringConstraints

Samples = Annotated[str, StringConstraints(pattern=r"^[^\x00]+\.npz$", max_length=4096)]
"""The path of a `.npz` file."""
