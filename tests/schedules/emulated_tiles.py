"""What instructions on registers of tiles mean (Intel's AMX), in plain LLVM IR.

After Intel's Software Developer's Manual, volume 2. A register keeps 16 rows of 64 bytes, whatever
is configured; each thread has its own. Where the processor raises an exception, this traps: tiles
that nobody configured, shapes that do not fit each other.
"""

from itertools import count
from typing import Final

_STATE: Final = """
@emulated.tiles = internal thread_local global [8 x [16 x [64 x i8]]] zeroinitializer
@emulated.configuration = internal thread_local global [64 x i8] zeroinitializer
define internal void @emulated.insist(i1 %true) {
  br i1 %true, label %fine, label %exception
exception:
  call void @llvm.trap()
  unreachable
fine:
  ret void
}
define internal i64 @emulated.rows(i64 %tile) {
  %palette = load i8, ptr @emulated.configuration
  %configured = icmp eq i8 %palette, 1
  call void @emulated.insist(i1 %configured)
  %at = add i64 %tile, 48
  %place = getelementptr i8, ptr @emulated.configuration, i64 %at
  %value = load i8, ptr %place
  %rows = zext i8 %value to i64
  %few = icmp ule i64 %rows, 16
  call void @emulated.insist(i1 %few)
  %some = icmp ne i64 %rows, 0
  call void @emulated.insist(i1 %some)
  ret i64 %rows
}
define internal i64 @emulated.bytes(i64 %tile) {
  %place = getelementptr [2 x i8], ptr @emulated.configuration, i64 %tile
  %first = getelementptr i8, ptr %place, i64 16
  %value = load i16, ptr %first
  %bytes = zext i16 %value to i64
  %few = icmp ule i64 %bytes, 64
  call void @emulated.insist(i1 %few)
  %some = icmp ne i64 %bytes, 0
  call void @emulated.insist(i1 %some)
  ret i64 %bytes
}
define internal ptr @emulated.row(i64 %tile, i64 %row) {
  %place = getelementptr [8 x [16 x [64 x i8]]], ptr @emulated.tiles, i64 0, i64 %tile, i64 %row
  ret ptr %place
}
"""

_COPY: Final = """
  %tile = zext i8 %number to i64
  %rows = call i64 @emulated.rows(i64 %tile)
  %bytes = call i64 @emulated.bytes(i64 %tile)
{loop}
  ret void
"""

_LOADED: Final = """
  %there = call ptr @emulated.row(i64 %tile, i64 %row)
  call void @llvm.memset.p0.i64(ptr %there, i8 0, i64 64, i1 false)
  %ahead = mul i64 %row, %stride
  %here = getelementptr i8, ptr %memory, i64 %ahead
  call void @llvm.memcpy.p0.p0.i64(ptr {to}, ptr {of}, i64 %bytes, i1 false)
"""

_PRODUCT: Final = """
  %to.row = call ptr @emulated.row(i64 %to, i64 %row)
  %a.row = call ptr @emulated.row(i64 %a, i64 %row)
  %b.row = call ptr @emulated.row(i64 %b, i64 %word)
  %sum.place = getelementptr i32, ptr %to.row, i64 %column
  %a.at = mul i64 %word, 4
  %a.byte = add i64 %a.at, %byte
  %b.at = mul i64 %column, 4
  %b.byte = add i64 %b.at, %byte
  %a.place = getelementptr i8, ptr %a.row, i64 %a.byte
  %b.place = getelementptr i8, ptr %b.row, i64 %b.byte
  %a.short = load i8, ptr %a.place
  %b.short = load i8, ptr %b.place
  %a.value = {a} i8 %a.short to i32
  %b.value = {b} i8 %b.short to i32
  %product = mul i32 %a.value, %b.value
  %old = load i32, ptr %sum.place
  %new = add i32 %old, %product
  store i32 %new, ptr %sum.place
"""

_PAIRS: Final = """
  %a.row = call ptr @emulated.row(i64 %a, i64 %row)
  %b.row = call ptr @emulated.row(i64 %b, i64 %word)
  %a.place = getelementptr i32, ptr %a.row, i64 %word
  %b.place = getelementptr i32, ptr %b.row, i64 %column
  %a.pair = load i32, ptr %a.place
  %b.pair = load i32, ptr %b.place
  call void @emulated.add(ptr %sum0, i32 %a.pair, i32 %b.pair, i32 16)
  call void @emulated.add(ptr %sum1, i32 %a.pair, i32 %b.pair, i32 0)
"""

_HALVES: Final = """
  %sum0 = alloca float
  %sum1 = alloca float
  store float 0.0, ptr %sum0
  store float 0.0, ptr %sum1
{loop}
  %even = load float, ptr %sum0
  %odd = load float, ptr %sum1
  %both.exact = fadd float %even, %odd
  %both = call float @emulated.flushed(float %both.exact)
  %to.row = call ptr @emulated.row(i64 %to, i64 %row)
  %place = getelementptr float, ptr %to.row, i64 %column
  %old.exact = load float, ptr %place
  %old = call float @emulated.flushed(float %old.exact)
  %new.exact = fadd float %old, %both
  %new = call float @emulated.flushed(float %new.exact)
  store float %new, ptr %place
"""
"""`tdpbf16ps`: even and odd products have sums of their own, added to the old one last."""

_FLUSHED: Final = """
define internal float @emulated.flushed(float %value) {
  %bits = bitcast float %value to i32
  %exponent = and i32 %bits, 2139095040
  %small = icmp eq i32 %exponent, 0
  %zero = and i32 %bits, -2147483648
  %kept = select i1 %small, i32 %zero, i32 %bits
  %flushed = bitcast i32 %kept to float
  ret float %flushed
}
define internal void @emulated.add(ptr %sum, i32 %a.pair, i32 %b.pair, i32 %shift) {
  %a.moved = shl i32 %a.pair, %shift
  %b.moved = shl i32 %b.pair, %shift
  %a.bits = and i32 %a.moved, -65536
  %b.bits = and i32 %b.moved, -65536
  %a.exact = bitcast i32 %a.bits to float
  %b.exact = bitcast i32 %b.bits to float
  %a.value = call float @emulated.flushed(float %a.exact)
  %b.value = call float @emulated.flushed(float %b.exact)
  %old = load float, ptr %sum
  %exact = call float @llvm.fma.f32(float %a.value, float %b.value, float %old)
  %new = call float @emulated.flushed(float %exact)
  store float %new, ptr %sum
  ret void
}
declare float @llvm.fma.f32(float, float, float)
"""

_SHAPES: Final = """
  %to = zext i8 %number to i64
  %a = zext i8 %first to i64
  %b = zext i8 %second to i64
  %rows = call i64 @emulated.rows(i64 %to)
  %a.rows = call i64 @emulated.rows(i64 %a)
  %b.rows = call i64 @emulated.rows(i64 %b)
  %bytes = call i64 @emulated.bytes(i64 %to)
  %a.bytes = call i64 @emulated.bytes(i64 %a)
  %b.bytes = call i64 @emulated.bytes(i64 %b)
  %columns = udiv i64 %bytes, 4
  %words = udiv i64 %a.bytes, 4
  %fits.rows = icmp eq i64 %rows, %a.rows
  %fits.words = icmp eq i64 %words, %b.rows
  %fits.columns = icmp eq i64 %bytes, %b.bytes
  call void @emulated.insist(i1 %fits.rows)
  call void @emulated.insist(i1 %fits.words)
  call void @emulated.insist(i1 %fits.columns)
{loop}
  ret void
"""

_EXTENDED: Final = {"u": "zext", "s": "sext"}


def definitions(names: list[str]) -> str:
    """Return what instructions on tiles mean; "" if there are none. Raises KeyError."""
    found = [_definition(name) for name in names]
    return "\n".join([_STATE, _FLUSHED, *found]) if found else ""


def _definition(name: str) -> str:
    instruction = name.removeprefix("x86.")
    if instruction in {"ldtilecfg", "tilerelease"}:
        taken, memory = ("ptr %memory", "%memory") if instruction == "ldtilecfg" else ("", "")
        copied = (
            f"call void @llvm.memcpy.p0.p0.i64(ptr @emulated.configuration, ptr {memory}, i64 64,"
            " i1 false)"
            if memory
            else "store i8 0, ptr @emulated.configuration"
        )
        cleared = "call void @llvm.memset.p0.i64(ptr @emulated.tiles, i8 0, i64 8192, i1 false)"
        return _function(name, taken, f"  {copied}\n  {cleared}\n  ret void\n")
    if instruction == "tilezero":
        zeroed = """
  %there = call ptr @emulated.row(i64 %tile, i64 %row)
  call void @llvm.memset.p0.i64(ptr %there, i8 0, i64 64, i1 false)"""
        return _function(name, "i8 %number", _COPY.format(loop=_loops(zeroed, row="16")))
    if instruction in {"tileloadd64", "tilestored64"}:
        load = instruction == "tileloadd64"
        body = _LOADED.format(to="%there" if load else "%here", of="%here" if load else "%there")
        if not load:
            body = body.replace(body.splitlines()[2], "")
        loop = _loops(body, row="%rows")
        return _function(name, "i8 %number, ptr %memory, i64 %stride", _COPY.format(loop=loop))
    given = "i8 %number, i8 %first, i8 %second"
    if instruction == "tdpbf16ps":
        body = _HALVES.format(loop=_loops(_PAIRS, word="%words"))
        loop = _loops(body, row="%rows", column="%columns")
        return _function(name, given, _SHAPES.format(loop=loop))
    a, b = tuple(instruction.removeprefix("tdpb").removesuffix("d"))
    body = _PRODUCT.format(a=_EXTENDED[a], b=_EXTENDED[b])
    loop = _loops(body, row="%rows", column="%columns", word="%words", byte="4")
    return _function(name, given, _SHAPES.format(loop=loop))


def _function(name: str, given: str, body: str) -> str:
    return f"define internal void @emulated.{name}({given}) {{\n{body}}}\n"


_NUMBERS = count()


def _loops(body: str, **bounds: str) -> str:
    """Return IR that runs a body for all values of variables below their bounds."""
    for name, bound in reversed(bounds.items()):
        at = f"{name}{next(_NUMBERS)}"
        body = f"""
  %{at}.now = alloca i64
  store i64 0, ptr %{at}.now
  br label %{at}.head
{at}.head:
  %{name} = load i64, ptr %{at}.now
  %{at}.more = icmp ult i64 %{name}, {bound}
  br i1 %{at}.more, label %{at}.body, label %{at}.end
{at}.body:
{body}
  %{at}.next = add i64 %{name}, 1
  store i64 %{at}.next, ptr %{at}.now
  br label %{at}.head
{at}.end:
"""
    return body
