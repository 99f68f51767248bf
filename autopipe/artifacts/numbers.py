"""Constrained types of numbers and names in documents."""

from typing import Annotated, Final

from pydantic import Field, StringConstraints

SLOWEST: Final = 1e4
"""Maximum measured seconds of one call; larger values are placeholders."""

Count = Annotated[int, Field(ge=0, lt=1 << 63)]
"""A number of things."""

Amount = Annotated[float, Field(ge=0, le=1e30)]
"""Seconds, a share, operations, or a ratio; sums of them stay finite."""

Time = Annotated[float, Field(gt=0, lt=SLOWEST)]
"""Measured seconds of one call."""

Name = Annotated[str, StringConstraints(max_length=200)]
"""Of an engine, an implementation or a device."""

TaskName = Annotated[str, StringConstraints(max_length=10_000)]
"""Of a task: all operators of a fused function, of which quantized models have dozens."""

Hash = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{1,64}$")]
"""Of a workload."""
