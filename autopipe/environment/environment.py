"""The world outside as facts: versions, target, machine, linker. Those a stage reads enter its key.

What only TVM knows is asked once for each installation, in a child process, which is also the
check that the installation works. The answer is kept in the store, so that a cached run never
imports TVM.
"""

import math
import os
import re
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from importlib import metadata
from pathlib import Path
from platform import machine, python_version
from typing import Final, Protocol

from autopipe.backends import BACKENDS
from autopipe.config.target import Target
from autopipe.environment.caches import caches
from autopipe.environment.facet import Facet, Facts
from autopipe.environment.machines import machine_of
from autopipe.environment.template_versions import TEMPLATE_VERSIONS
from autopipe.environment.toolchain import toolchain
from autopipe.errors import SetupError, TargetError
from autopipe.extensions import distributions, read_template_versions
from autopipe.formats import FORMATS
from autopipe.libraries import versions
from autopipe.store import files
from autopipe.store.canonical import digest, seal, unseal
from autopipe.store.store import Store

_STACK: Final = ("apache-tvm", "apache-tvm-ffi")

Stack = Mapping[str, str]
"""What TVM says: `llvm` version, the host's `mcpu` and `mtriple`, and what it `lacks`."""

_ASKED: Final = ("llvm", "mcpu", "mtriple", "lacks")
_EXAMINED: Final = 2
"""Raise it when the same installation says something else of the same machine."""


class Environment(Protocol):
    """Where facts come from."""

    def facts(self, facets: Iterable[Facet]) -> Facts:
        """Return what the facets say. Raises SetupError, TargetError."""

    def known(self, facets: Iterable[Facet]) -> Facts | None:
        """Return the same, or None where TVM would have to be asked first."""


class Host:
    """The machine this process runs on, seen by a pipeline with this target."""

    def __init__(self, target: Target, store: Store, examine: Callable[[], Stack]) -> None:
        """Take how TVM is asked: `examine` runs it in a child and raises SetupError."""
        self._target = target
        self._store = store
        self._examine = examine

    def facts(self, facets: Iterable[Facet]) -> Facts:
        """Return what the facets say, asking TVM only if nobody has on this installation."""
        facets = frozenset(facets)
        known = self.known(facets)
        if known is None:
            _remember(self._store, self._examine())
            known = self.known(facets)
        if known is None:
            raise SetupError(f"{self._store.root}: can not keep what TVM said")
        return known

    def known(self, facets: Iterable[Facet]) -> Facts | None:
        """Return what the facets say, or None where TVM was never asked."""
        backend = BACKENDS[self._target.kind]
        found: dict[Facet, Mapping[str, object]] = {}
        for facet in facets:
            if facet in {Facet.TVM, Facet.TARGET}:
                stack = _recall(self._store)
                if stack is None:
                    return None
                found[facet] = _tvm(stack) if facet is Facet.TVM else resolve(self._target, stack)
            elif facet is Facet.TOOLCHAIN:
                found[facet] = {**toolchain(self._target), **backend.describe_toolchain()}
            elif facet is Facet.DEVICE:
                found[facet] = {**device(), **backend.describe_device()}
            else:
                found[facet] = _FACTS[facet]()
        return found


def resolve(target: Target, stack: Stack) -> dict[str, object]:
    """Replace what a target leaves to the machine by what this machine is. Raises TargetError."""
    mtriple = target.mtriple or stack["mtriple"]
    if target.mcpu == "native" and mtriple.split("-")[0] != stack["mtriple"].split("-")[0]:
        raise TargetError(
            f"target.mcpu: native is this machine, {stack['mtriple']}; "
            f"name the processor that target.mtriple {mtriple} has"
        )
    native = target.mcpu == "native"
    mcpu = stack["mcpu"] if native else target.mcpu
    lacks = [f"-{feature}" for feature in stack["lacks"].split()] if native else []
    return {
        **_arch(target),
        "kind": target.kind,
        "mcpu": mcpu,
        "mattr": [*lacks, *target.mattr],
        "mtriple": mtriple,
        "num_cores": target.num_cores or len(os.sched_getaffinity(0)),
        "hardware": {
            **caches(machine_of(mcpu, mtriple.split("-")[0]), here=native),
            **target.hardware.model_dump(exclude_none=True),
        },
    }


def _arch(target: Target) -> dict[str, object]:
    """Return the architecture of a device that has one."""
    arch = BACKENDS[target.kind].resolve_architecture(target.arch)
    return {} if arch is None else {"arch": arch}


def version(package: str) -> str:
    """Return the version of an installed package. Raises SetupError."""
    found = _version(package)
    if found is None:
        raise SetupError(f"{package} is not installed; pip install '{requirement(package)}'")
    return found


def requirement(package: str) -> str:
    """Return how autopipe asks for a package, such as `apache-tvm==0.27.0.post1`."""
    try:
        lines = metadata.requires("autopipe") or []
    except metadata.PackageNotFoundError:
        lines = []
    pattern = re.compile(rf"{re.escape(package)}\s*[^\w.-][^;]*")
    return next((match[0].strip() for match in map(pattern.match, lines) if match), package)


def describe_tvm_misfit(reason: str) -> str:
    """Return a message that TVM and tvm-ffi do not fit each other, with what to install."""
    return (
        f"apache-tvm {version('apache-tvm')} does not work with apache-tvm-ffi "
        f"{version('apache-tvm-ffi')} ({reason}): "
        f"pip install {requirement('apache-tvm')} {requirement('apache-tvm-ffi')}"
    )


def _tvm(stack: Stack) -> dict[str, object]:
    return {
        "tvm": version("apache-tvm"),
        "tvm_ffi": version("apache-tvm-ffi"),
        "llvm": stack["llvm"],
    }


@cache
def device() -> dict[str, object]:
    """Describe what decides how fast code runs here; never which machine of its kind it is."""
    cpu = _cpu()
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return {
        "machine": machine(),
        "cpu": cpu.get("model name") or cpu.get("CPU part") or "unknown",
        "flags": digest(sorted((cpu.get("flags") or cpu.get("Features") or "").split()))[:16],
        "cores": len(os.sched_getaffinity(0)),
        "memory_gib": 2 ** round(math.log2(memory)),
    }


def _cpu() -> dict[str, str]:
    """Read what the kernel says of the first processor."""
    found: dict[str, str] = {}
    with Path("/proc/cpuinfo").open(encoding="utf-8", errors="replace") as lines:
        for line in lines:
            name, colon, value = line.partition(":")
            if not colon and found:
                break
            found[name.strip()] = value.strip()
    return found


@cache
def _reference() -> dict[str, object]:
    return {"onnx": _version("onnx"), "onnxruntime": _version("onnxruntime")}


@cache
def _frontend() -> dict[str, object]:
    readers = (package for one in FORMATS.values() for package in one.packages)
    return {name: _version(name) for name in (*readers, "numpy")}


@cache
def _packages() -> dict[str, object]:
    return {name: _version(name) for name in ("autopipe", "numpy", "safetensors")}


_FACTS: Final[Mapping[Facet, Callable[[], dict[str, object]]]] = {
    Facet.REFERENCE: _reference,
    Facet.FRONTEND: _frontend,
    Facet.LIBRARIES: lambda: dict(versions()),
    Facet.PACKAGES: _packages,
    Facet.EXTENSIONS: lambda: dict(distributions()),
    Facet.TEMPLATES: lambda: {**TEMPLATE_VERSIONS, **read_template_versions()},
}


@cache
def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _memo(store: Store) -> Path:
    """Return where the facts of exactly this installation on this processor are kept."""
    return store.root / "environments" / f"{_installation()}.json"


@cache
def _installation() -> str:
    marks = []
    for package in _STACK:
        record = f"{package.replace('-', '_')}-{version(package)}.dist-info/RECORD"
        path = Path(str(metadata.distribution(package).locate_file(record)))
        status = path.stat() if path.exists() else None
        marks.append([record, status and status.st_size, status and status.st_mtime_ns])
    cpu = device()
    return digest([_EXAMINED, python_version(), marks, cpu["machine"], cpu["cpu"], cpu["flags"]])


def _recall(store: Store) -> Stack | None:
    with files.guard(store.root):
        found = unseal(files.recall(_memo(store)) or b"") or {}
    return found if all(isinstance(found.get(name), str) for name in _ASKED) else None


def _remember(store: Store, stack: Stack) -> None:
    with files.guard(store.root):
        files.replace(_memo(store), seal(dict(stack)), store.tmp)
