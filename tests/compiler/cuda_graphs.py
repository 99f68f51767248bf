"""What tests of code for GPUs share."""

import pytest

from autopipe.environment.cuda import nvcc
from autopipe.schedules.conditions import Conditions

FACTS = {"kind": "cuda", "arch": "sm_90", "mcpu": "x86-64-v2", "mtriple": None, "num_cores": 2}
CONDITIONS = Conditions.of(FACTS, fast_algorithms=True)
TARGET = CONDITIONS.target

needs_nvcc = pytest.mark.skipif(nvcc() is None, reason="there is no nvcc here")
