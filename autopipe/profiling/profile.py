"""A profile of a build as a document: kernels and builtins, with their nodes and their work."""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from autopipe.artifacts.benchmark import RoundConditions
from autopipe.artifacts.document import Part
from autopipe.artifacts.model_nodes import KernelCall, LibraryNodes, NodeMap
from autopipe.benchmarking.conditions import disturbance
from autopipe.host.stopwatch import compute_lower_quartile


class Peaks(Part, frozen=True):
    """Peak rates of this machine with the same number of threads."""

    gflops: float
    """Rate of a float32 matmul, in GFLOPS."""
    gbps: float
    """Bytes that a copy reads and writes, in billions a second."""

    def compute_bound(self, call: "ProfiledCall") -> float:
        """Return the roofline bound of a call in seconds: the maximum of compute and memory."""
        computing = call.flops / self.gflops if self.gflops else 0.0
        moving = call.bytes / self.gbps if self.gbps else 0.0
        return max(computing, moving) / 1e9


@dataclass(slots=True)
class WatchedCall:
    """One call of the virtual machine, as it is measured."""

    symbol: str
    kernel: bool
    start: float
    """Seconds since the run began."""
    seconds: float | None = None
    """None if this run does not time it."""
    bytes: int = 0
    """Of all its tensor arguments."""
    shapes: list[list[int]] = field(default_factory=list)


class ProfiledCall(Part, frozen=True):
    """A call of the virtual machine in one run."""

    symbol: str
    kernel: bool
    """Whether it is a kernel, and not a builtin."""
    start: float
    """Seconds since the run began."""
    seconds: float
    """Lower quartile of all runs."""
    bytes: int
    """Of all its tensor arguments."""
    flops: float
    """Floating-point operations; 0 where they are not known."""
    shapes: tuple[tuple[int, ...], ...]
    """Of these tensors."""
    nodes: tuple[str, ...]
    """Nodes of the model that it computes."""
    added: bool
    """Whether the compiler added it for these nodes."""


class ProfileRow(Part, frozen=True):
    """All calls of a kernel for the same nodes, or of a builtin."""

    symbol: str
    kernel: bool
    nodes: tuple[str, ...]
    added: bool
    calls: int
    seconds: float
    """Of all calls in one run."""
    share: float
    """Of the sum of all rows."""
    gflops: float | None
    """Billions of operations a second; null where they are not known."""
    gbps: float | None
    """Billions of bytes a second; null where it has no tensor arguments, or takes less time than
    the overhead that is subtracted."""


class Profile(Part, frozen=True):
    """The distribution of the time of a build over its calls."""

    library: str
    """The library that ran: `lib.so`, or one for certain sizes."""
    shapes: dict[str, tuple[int, ...]]
    """Of the inputs."""
    threads: int
    runs: int
    whole: float
    """Lower quartile of the seconds of a run without instrumentation."""
    call: float
    """The same for a call of the package, with checks and copies of inputs and outputs."""
    sum: float
    """Seconds of all rows."""
    peaks: Peaks
    rows: tuple[ProfileRow, ...]
    """In the order of their first calls."""
    calls: tuple[ProfiledCall, ...]
    """One run, in order."""
    disturbed: str | None = None
    """Other load on the processor during the measurement, if there was any."""

    @property
    def difference(self) -> float:
        """Return the share of the run that is in no row; negative if the rows take longer."""
        return 1 - self.sum / self.whole if self.whole else 0.0


def build_profile(answer: Mapping[str, Any], nodes: NodeMap, runs: int, peaks: Peaks) -> Profile:
    """Build a profile from the measurements of a child process."""
    measured_calls = [WatchedCall(**call) for call in answer["calls"]]
    library = nodes.named(str(answer["library"]))
    calls = tuple(_list_profiled_calls(measured_calls, library, nodes))
    total = sum(call.seconds for call in calls)
    disturbed_by = disturbance(RoundConditions(**answer["conditions"]), answer["threads"])
    return Profile(
        library=str(answer["library"]), shapes=answer["shapes"], threads=answer["threads"],
        runs=runs, whole=compute_lower_quartile(answer["whole"]), call=answer["call"], sum=total,
        peaks=peaks,
        rows=tuple(_list_rows(calls, total)), calls=calls,
        disturbed=disturbed_by and str(disturbed_by),
    )  # fmt: skip


def _list_profiled_calls(
    measured_calls: Sequence[WatchedCall], library: LibraryNodes, nodes: NodeMap
) -> Iterator[ProfiledCall]:
    work = {one.kernel: one.flops for one in library.work}
    sites = match_sites([call.symbol for call in measured_calls], library)
    for call, site in zip(measured_calls, sites, strict=True):
        yield ProfiledCall(
            symbol=call.symbol, kernel=call.kernel, start=call.start, seconds=call.seconds or 0.0,
            bytes=call.bytes, flops=work.get(call.symbol, 0.0),
            shapes=tuple(map(tuple, call.shapes)),
            nodes=name_nodes(nodes, site), added=site.added,
        )  # fmt: skip


def name_nodes(nodes: NodeMap, site: KernelCall) -> tuple[str, ...]:
    """Return the names of the nodes that a kernel call computes."""
    model_nodes = nodes.nodes
    return tuple(
        model_nodes[at].name if at < len(model_nodes) else f"node {at}" for at in site.nodes
    )


def match_sites(symbols: Sequence[str], library: LibraryNodes) -> list[KernelCall]:
    """Map each call of a run to a call site of the graph, by symbol and order.

    If a kernel is called as often as the graph has call sites, they correspond in order. In loops
    and branches the numbers differ: then a call has the nodes of all call sites of its kernel.
    """
    kernel_sites: dict[str, list[KernelCall]] = defaultdict(list)
    for function in library.functions:
        for site in function.calls:
            kernel_sites[site.kernel].append(site)
    counts = Counter(symbols)
    single = len(library.functions) == 1
    places: Counter[str] = Counter()
    matched_sites = []
    for symbol in symbols:
        sites = kernel_sites.get(symbol, [])
        if single and counts[symbol] == len(sites):
            matched_sites.append(sites[places[symbol]])
        else:
            matched_sites.append(_merge_kernel_calls(symbol, sites))
        places[symbol] += 1
    return matched_sites


def _merge_kernel_calls(symbol: str, sites: Sequence[KernelCall]) -> KernelCall:
    nodes = tuple(sorted({node for site in sites for node in site.nodes}))
    added = bool(sites) and all(site.added for site in sites)
    return KernelCall(kernel=symbol, nodes=nodes, added=added)


def _list_rows(calls: Sequence[ProfiledCall], total: float) -> Iterator[ProfileRow]:
    groups: dict[object, list[ProfiledCall]] = {}
    for call in calls:
        groups.setdefault((call.symbol, call.nodes, call.added), []).append(call)
    for group in groups.values():
        first, seconds = group[0], sum(call.seconds for call in group)
        flops, byte_count = sum(call.flops for call in group), sum(call.bytes for call in group)
        yield ProfileRow(
            symbol=first.symbol, kernel=first.kernel, nodes=first.nodes, added=first.added,
            calls=len(group), seconds=seconds, share=seconds / total if total else 0.0,
            gflops=flops / seconds / 1e9 if flops and seconds else None,
            gbps=byte_count / seconds / 1e9 if byte_count and seconds else None,
        )  # fmt: skip
