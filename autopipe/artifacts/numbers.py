"""Numbers and names as documents hold them, with what they may be."""

from typing import Annotated, Final

from pydantic import Field, StringConstraints

SLOWEST: Final = 1e4
"""Seconds of one call beyond which a time is no measurement but a stub."""

Count = Annotated[int, Field(ge=0, lt=1 << 63)]
"""How many there are."""

Amount = Annotated[float, Field(ge=0, le=1e30)]
"""Seconds, a share, operations, or by what factor something is longer; sums of them stay finite."""

Time = Annotated[float, Field(gt=0, lt=SLOWEST)]
"""Measured seconds of one call."""

Name = Annotated[str, StringConstraints(max_length=200)]
"""Of an engine, an implementation or a device."""

TaskName = Annotated[str, StringConstraints(max_length=10_000)]
"""Of a task: all operators of a fused function, of which quantized models have dozens."""

Hash = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{1,64}$")]
"""Of a workload."""
