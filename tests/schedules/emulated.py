"""Runs code for instructions that this processor lacks: their meaning takes their place.

TVM compiles for the processor that is asked for, as ever. In the LLVM IR that comes out, each call
of an instruction goes to a definition of it in plain IR, and what is left is compiled for a
processor that this machine is one of:

    %new = call <16 x i32> @llvm.x86.avx512.vpdpbusd.512(<16 x i32> %sums, ...)   ; "cascadelake"
    %new = call <16 x i32> @emulated.x86.avx512.vpdpbusd.512(<16 x i32> %sums, ...)   ; "haswell"

So schedules, layouts of weights, loops and the choice of the instruction are those that ship. How
LLVM encodes the instruction is not seen. One that has no definition here is an error.
"""

import re
from collections.abc import Sequence
from functools import wraps
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import tvm
from llvmlite import binding
from tvm.support import cc

from autopipe.compiler.codegen.compile_kernels import compile_kernel
from autopipe.compiler.codegen.configure_tiles import SYSTEM_CALL
from autopipe.compiler.target import cpu
from tests.schedules import emulated_tiles

_INSTRUCTION: Final = r"x86\.(?:avx512\w*\.[\w.]+|(?:ld)?tile\w+|tdp\w+)"
_CALLED: Final = re.compile(rf"@llvm\.({_INSTRUCTION})")
_DECLARED: Final = re.compile(rf"^declare [^\n]*@llvm\.{_INSTRUCTION}[^\n]*\n", re.MULTILINE)
_ASKED: Final = re.compile(rf"(?:tail )?call i64 {re.escape(SYSTEM_CALL)}(?: #\d+)?")
"""How a kernel asks Linux for the registers of tiles; there are none to ask for here."""
_TILED: Final = re.compile(r"x86\.((ld)?tile|tdp)")
_PROCESSOR: Final = re.compile(r'"target-cpu"="[^"]*"')
_FEATURES: Final = re.compile(r'"(?:target-features|tune-cpu)"(?:="[^"]*")?')

_SHORT: Final = re.compile(r"\bbfloat\b")
"""What is loaded and handed over is bits; as numbers LLVM would convert them on the way."""

_KERNELS: Final = "lib0.o"
"""What TVM calls the machine code of a library's kernels when it has them linked."""

_PLAIN: Final = {"haswell": {"avx2", "fma", "f16c", "bmi2"}, "x86-64-v2": {"sse4.2", "popcnt"}}
"""What the rest is compiled for: the first of which this processor has the features."""

_FOURS: Final = """
define internal <{lanes} x i32> @{name}(
    <{lanes} x i32> %sums, <{bytes} x i8> %row, <{bytes} x i8> %weights) {{
  %a = zext <{bytes} x i8> %row to <{bytes} x i32>
  %b = sext <{bytes} x i8> %weights to <{bytes} x i32>
  %products = mul <{bytes} x i32> %a, %b
  {picked}
  %s0 = add <{lanes} x i32> %sums, %p0
  %s1 = add <{lanes} x i32> %s0, %p1
  %s2 = add <{lanes} x i32> %s1, %p2
  %s3 = add <{lanes} x i32> %s2, %p3
  ret <{lanes} x i32> %s3
}}
"""
"""`vpdpbusd`: four products of an unsigned and a signed byte are added to each sum, which wraps."""

_WORDS: Final = """
define internal <{lanes} x i32> @{name}(<{words} x i16> %row, <{words} x i16> %weights) {{
  %a = sext <{words} x i16> %row to <{words} x i32>
  %b = sext <{words} x i16> %weights to <{words} x i32>
  %products = mul <{words} x i32> %a, %b
  {picked}
  %sum = add <{lanes} x i32> %p0, %p1
  ret <{lanes} x i32> %sum
}}
"""
"""`vpmaddwd`: two products of signed words are added."""

_PAIRS: Final = """
define internal <{lanes} x float> @{name}(
    <{lanes} x float> %sums, <{halves} x bfloat> %row, <{halves} x bfloat> %weights) {{
  %a = bitcast <{halves} x bfloat> %row to <{lanes} x i32>
  %b = bitcast <{halves} x bfloat> %weights to <{lanes} x i32>
  %s = bitcast <{lanes} x float> %sums to <{lanes} x i32>
  %a.odd = and <{lanes} x i32> %a, splat (i32 -65536)
  %b.odd = and <{lanes} x i32> %b, splat (i32 -65536)
  %a.even = shl <{lanes} x i32> %a, splat (i32 16)
  %b.even = shl <{lanes} x i32> %b, splat (i32 16)
  %s.in = call <{lanes} x float> @{name}.flush(<{lanes} x i32> %s)
  %a.1 = call <{lanes} x float> @{name}.flush(<{lanes} x i32> %a.odd)
  %b.1 = call <{lanes} x float> @{name}.flush(<{lanes} x i32> %b.odd)
  %a.0 = call <{lanes} x float> @{name}.flush(<{lanes} x i32> %a.even)
  %b.0 = call <{lanes} x float> @{name}.flush(<{lanes} x i32> %b.even)
  %first = call <{lanes} x float> @llvm.fma.v{lanes}f32(
    <{lanes} x float> %a.1, <{lanes} x float> %b.1, <{lanes} x float> %s.in)
  %first.bits = bitcast <{lanes} x float> %first to <{lanes} x i32>
  %between = call <{lanes} x float> @{name}.flush(<{lanes} x i32> %first.bits)
  %second = call <{lanes} x float> @llvm.fma.v{lanes}f32(
    <{lanes} x float> %a.0, <{lanes} x float> %b.0, <{lanes} x float> %between)
  %second.bits = bitcast <{lanes} x float> %second to <{lanes} x i32>
  %new = call <{lanes} x float> @{name}.flush(<{lanes} x i32> %second.bits)
  ret <{lanes} x float> %new
}}
define internal <{lanes} x float> @{name}.flush(<{lanes} x i32> %bits) {{
  %exponent = and <{lanes} x i32> %bits, splat (i32 2139095040)
  %small = icmp eq <{lanes} x i32> %exponent, zeroinitializer
  %zero = and <{lanes} x i32> %bits, splat (i32 -2147483648)
  %kept = select <{lanes} x i1> %small, <{lanes} x i32> %zero, <{lanes} x i32> %bits
  %value = bitcast <{lanes} x i32> %kept to <{lanes} x float>
  ret <{lanes} x float> %value
}}
declare <{lanes} x float> @llvm.fma.v{lanes}f32(
    <{lanes} x float>, <{lanes} x float>, <{lanes} x float>)
"""
"""`vdpbf16ps`, as Intel's manual describes it (Software Developer's Manual, volume 2, "VDPBF16PS"):
of each pair the product of the odd elements is added first, then that of the even ones, each by a
fused multiply-add that rounds to nearest even. Denormal inputs are zeros, denormal results become
zeros, whatever MXCSR says. Not kept to: which nan comes out of several, and whether a result is
denormal is asked after it was rounded."""

_MEANINGS: Final = (
    (r"x86\.avx512\.vpdpbusd\.(\d+)", _FOURS),
    (r"x86\.avx512\.pmaddw\.d\.(\d+)", _WORDS),
    (r"x86\.avx512bf16\.dpbf16ps\.(\d+)", _PAIRS),
)
"""Names of instructions, with their bits, and what they mean."""


def needed(target: tvm.target.Target) -> bool:
    """Tell whether code for a target has to be emulated: it is for a better x86 than this one."""
    facts = {name: target.attrs[name] for name in ("mcpu", "mattr", "mtriple")
             if name in target.attrs}  # fmt: skip
    if "mcpu" not in facts or {cpu.find_architecture(facts), cpu.find_architecture({})} != {
        "x86_64"
    }:
        return False
    return not cpu.list_host_features().issuperset(
        cpu.list_required_features({**facts, "num_cores": 1})
    )


def kernel(scheduled: tvm.IRModule, target: tvm.target.Target) -> Any:
    """Compile as `compile_kernel` does, and emulate what this processor lacks."""
    library = compile_kernel(scheduled, target)
    return loaded(library) if needed(target) else library


def loaded(library: Any) -> Any:
    """Return a library that TVM compiled for another processor, as code that runs on this one."""
    with TemporaryDirectory() as folder:
        path = Path(folder, "emulated.so")
        link(rewritten(library.inspect_source("ll")), path)
        return tvm.runtime.load_module(str(path))


def rewritten(text: str) -> str:
    """Return LLVM IR with the meaning of each instruction in the place of the instruction."""
    names = list(dict.fromkeys(_CALLED.findall(text)))
    definitions = [_definition(name) for name in names if not _TILED.match(name)]
    definitions.append(emulated_tiles.definitions([name for name in names if _TILED.match(name)]))
    plain = _ASKED.sub("add i64 0, 0", _DECLARED.sub("", text))
    plain = _CALLED.sub(r"@emulated.\1", plain)
    plain = _FEATURES.sub("", _PROCESSOR.sub(f'"target-cpu"="{_processor()}"', plain))
    return _SHORT.sub("i16", "\n".join([plain, *definitions]))


def link(text: str, path: Path, processor: str | None = None) -> None:
    """Write LLVM IR as a library for a processor, for this one if none is named."""
    path.with_suffix(".o").write_bytes(_object(text, processor))
    cc.create_shared(str(path), str(path.with_suffix(".o")))


def _object(text: str, processor: str | None = None) -> bytes:
    binding.initialize_native_target()
    binding.initialize_native_asmprinter()
    machine = binding.Target.from_default_triple().create_target_machine(
        cpu=processor or _processor(), opt=1, reloc="pic", codemodel="default"
    )
    code: bytes = machine.emit_object(binding.parse_assembly(text))
    return code


def _definition(name: str) -> str:
    """Return what an instruction means, in LLVM IR. Raises KeyError for one that is not known."""
    for pattern, meaning in _MEANINGS:
        if found := re.fullmatch(pattern, name):
            lanes = int(found[1]) // 32
            group = {_FOURS: 4}.get(meaning, 2)
            return meaning.format(
                name=f"emulated.{name}", lanes=lanes, bytes=4 * lanes, words=2 * lanes,
                halves=2 * lanes, picked=_picked(lanes, group),
            )  # fmt: skip
    raise KeyError(f"nobody has written down what llvm.{name} means")


def _picked(lanes: int, group: int) -> str:
    """Return IR that parts `%products` into `%p0`, `%p1`...: the n-th of each group."""
    kind = f"<{lanes * group} x i32>"
    lines = []
    for at in range(group):
        chosen = ", ".join(f"i32 {group * lane + at}" for lane in range(lanes))
        mask = f"<{lanes} x i32> <{chosen}>"
        lines.append(f"%p{at} = shufflevector {kind} %products, {kind} poison, {mask}")
    return "\n  ".join(lines)


def _processor() -> str:
    has = cpu.list_host_features()
    return next((name for name, wants in _PLAIN.items() if wants <= has), "x86-64")


def export(executable: Any, path: Path, *_: object) -> None:
    """Write a library as `export_library` does, but of code that runs on this processor."""
    (kernels,) = (part for part in executable.mod.imports if part.kind == "llvm")
    emulated = path.with_suffix(".o")
    emulated.write_bytes(_object(rewritten(kernels.inspect_source("ll"))))

    @wraps(cc.create_shared)  # TVM reads attributes of it
    def linked(output: str, objects: Sequence[str], **options: Any) -> None:
        ours = [str(emulated) if Path(one).name == _KERNELS else one for one in objects]
        assert ours != list(objects)
        cc.create_shared(output, ours, **options)

    executable.export_library(str(path), fcompile=linked)
    emulated.unlink()
