"""Describe the machine of a benchmark, and its load."""

import os

from autopipe.artifacts.benchmark import BenchmarkMachine
from autopipe.benchmarking.conditions import load_average
from autopipe.compiler.target import cpu


def describe_machine(load_before: float, gpu: str | None = None) -> BenchmarkMachine:
    """Describe the machine after the last round."""
    return BenchmarkMachine(
        cpu=cpu.read_cpu_model(),
        cores=len(os.sched_getaffinity(0)),
        gpu=gpu,
        load_before=load_before,
        load_after=load_average(),
    )
