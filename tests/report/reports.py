"""A report of a run that has everything in it, with names of your choice."""

from autopipe.artifacts.benchmark import (
    BenchmarkMachine,
    BenchmarkReport,
    CheckedGate,
    Outcome,
    TimedContender,
)
from autopipe.artifacts.headroom import TaskHeadroom
from autopipe.artifacts.signature import Port
from autopipe.benchmarking.latency import compare_latencies, summarize_rounds
from autopipe.report.document import (
    GraphCall,
    KernelGraph,
    KernelTime,
    Notice,
    PackageReport,
    ProfileReport,
    RunReport,
    SinceLastBuild,
    StageReport,
    TaskDifference,
    TaskReport,
    TuningCourse,
    TuningCurve,
)
from tests.artifacts.examples import checked_case, comparison, verification

DIGEST = "ab" * 32


def latency(seconds):
    return summarize_rounds([[seconds, seconds * 1.01], [seconds, seconds * 0.99], [seconds] * 2])


def measurement(name="onnxruntime"):
    ours, theirs = latency(1e-3), latency(2e-3)
    return BenchmarkReport(
        machine=BenchmarkMachine(cpu="AMD EPYC", cores=2, load_before=0.1, load_after=1.0),
        threads=2, warmup=3, repeat=10,
        ours=TimedContender(name="autopipe", version="1", latency=ours),
        competitors=(TimedContender(name=name, version="1.31", latency=theirs),),
        comparisons={name: compare_latencies(ours, theirs)}, skipped={}, device={"cpu": "AMD EPYC"},
        gates=(CheckedGate(gate="gates.regression", outcome=Outcome.PASSED, found="as fast"),),
    )  # fmt: skip


def full(name="demo", **fields):
    """Return a finished run; what a model or a file may name is called `name`."""
    found = measurement()
    gates = (
        *found.gates,
        CheckedGate(gate="gates.a", outcome=Outcome.FAILED, found=name),
        CheckedGate(gate="gates.b", outcome=Outcome.INCONCLUSIVE, found=name),
    )
    cases = (
        checked_case(name, comparison(name)),
        checked_case("wrong", comparison(name, failure=name)),
        checked_case("large"),
    )
    whole = RunReport(
        pipeline=name, configuration={"model": {"path": name}}, exit_code=0, outcome="finished",
        error=None, seconds=41.25, warnings=(Notice(stage="tasks", message=name),),
        stages=(
            StageReport(stage="import", state="cached", digest=DIGEST),
            StageReport(stage="build", state="finished", seconds=1.5, summary=name, digest=DIGEST),
            StageReport(stage="benchmark", state="finished", seconds=2.0),
            StageReport(stage="package", state="not_run"),
        ),
        tasks=(
            TaskReport(name=name, workload="0f", calls=2, engine="ansor", implementation="direct",
                       seconds=1e-3, reason=name, share=0.75, trials=9, failed=1, flops=1e6,
                       bytes=4096, result_bytes=3 << 20, nodes=(name, name),
                       ops=("permute_dims",), computes=(name,), schedule=(name,), problems=(name,),
                       tir=name),
            TaskReport(name="add", workload="1f", calls=1, engine="static", implementation="direct",
                       seconds=None, reason="not tuned", share=0.25, dropped=name,
                       result_bytes=1 << 20),
        ),
        graphs=(
            KernelGraph(library="lib.so", function=name, calls=(
                GraphCall(kernel=name, task=0, nodes=(name,)),
                GraphCall(kernel=name, task=1, nodes=(), reads=(0,), added=True),
                GraphCall(kernel=name, task=None, nodes=(name,), reads=(0, 1)),
            )),
        ),
        headroom=(
            TaskHeadroom(name="fused_conv", share=0.75, untuned=1.5e-3, tuned=1.2e-3, bound=5e-4,
                         left=0.25, trials=9, ended="its trials are spent"),
            TaskHeadroom(name="add", share=0.25, untuned=None, tuned=1.2e-3, bound=0.0, left=0.2,
                         trials=1, ended="too little to gain"),
        ),
        tuning=TuningCourse(ended=name, seconds=12.5, curves=(
            TuningCurve(engine="all", trials=9, failed=1, points=((0.0, 4e-3), (2.0, 2e-3))),
            TuningCurve(engine=name, trials=8, failed=0, points=((0.0, 4e-3),)),
        )),
        since=SinceLastBuild(fields=(name,), stages={"tune": (name, name)}, tasks=(
            TaskDifference(name=name, old=name, new=None, old_seconds=1e-3, new_seconds=None),
            TaskDifference(name="add", old=None, new="static on direct", old_seconds=None,
                           new_seconds=2e-3),
            TaskDifference(name="add", old="ansor on direct", new="static on direct",
                           old_seconds=1e-3, new_seconds=2e-3),
        )),
        profile=ProfileReport(
            library=name, threads=2, runs=10, whole=4e-3, sum=3e-3, gflops=100.0, gbps=20.0,
            kernels=(
                KernelTime(name=name, task=0, calls=2, seconds=1e-3, bound=5e-4),
                KernelTime(name=name, task=None, calls=1, seconds=2e-3, bound=0.0),
            ),
        ),
        searched_share=0.7, measured_share=0.9, steady_share=0.8, claimed=1,
        verification=verification(*cases, reference=name),
        benchmark=found, gates=gates, package=PackageReport(path=name, size=2**20, sha256=DIGEST),
        versions={"tvm": name}, sources={"import.model": name}, machine={"cpu": name},
        target={"mcpu": name},
        inputs=(Port(name=name, shape=(-1, 3), dtype="float32", dimensions=("batch", "")),),
        outputs=(Port(name=name, shape=(-1, 4), dtype="int64"),),
    )  # fmt: skip
    return whole.model_copy(update=fields)
