"""Check object files before they are linked, and the linked library.

No object file of code generation may run code when it is loaded. In a library the linker adds two
start-up functions of the C library; they are recognised by their names, and no others may be there.
"""

import re
from collections.abc import Iterator
from typing import Final

from autopipe.compiler.walls import elf, symbols
from autopipe.compiler.walls.foreign_code import ForeignCode
from autopipe.libraries import list_shipped_files

_SECTIONS: Final = re.compile(
    r"|\.text(\.\w[\w.]*)?|\.l?rodata(\.\w[\w.]*)?|\.l?data(\.rel\.ro|\.rel)?(\.\w[\w.]*)?|"
    r"\.l?bss(\.\w[\w.]*)?|\.rela?\.(?!init|fini|preinit|ctors|dtors)[\w.-]+|\.symtab|\.strtab|"
    r"\.shstrtab|\.symtab_shndx|\.comment|\.eh_frame|\.debug_\w+|\.note\.GNU-stack|"
    r"\.note\.gnu\.property|\.llvm_addrsig|\.ltext(\.\w[\w.]*)?|\.group"
)
"""Names of sections of objects."""

_LOADERS: Final = {
    "__gmon_start__", "_ITM_deregisterTMCloneTable", "_ITM_registerTMCloneTable", "__cxa_finalize",
    "_Jv_RegisterClasses", "__stack_chk_fail", "_GLOBAL_OFFSET_TABLE_", "__dso_handle",
}  # fmt: skip
"""Symbols that the start-up files of the C library import."""

_NEEDED: Final = re.compile(
    r"lib(m|c|pthread|dl|mvec|gcc_s|stdc\+\+)\.so(\.\d+)?|ld-(linux|musl)[\w.-]*\.so\.\d+|"
    r"libc\.musl-\w+\.so\.1"
)
_LISTS: Final = {
    (25, 27): (".init_array", "frame_dummy"),
    (26, 28): (".fini_array", "__do_global_dtors_aux"),
}
"""By dynamic tags of address and size of the functions that run when a library is loaded or
unloaded: the section, and the linker's own function in it."""

_CODE: Final = {(".init", 12): 64, (".fini", 13): 64}
"""Sections of code that runs then, with the dynamic tag of each, and their size at most: that of
the C library's own, which only call a profiler."""

_TAGS: Final = {
    15: "an RPATH", 29: "a RUNPATH", 22: "relocations of its text", 32: "functions to run first",
    0x6FFFFEFC: "a library that watches it", 0x6FFFFEFB: "a library to watch others",
    0x7FFFFFFD: "an auxiliary library", 0x7FFFFFFF: "a filter",
}  # fmt: skip
_NEEDED_TAG, _FLAGS, _TEXT_FLAG = 1, 30, 4
_POINTER: Final = 8
_BESIDE: Final = "$ORIGIN"
_INDIRECT: Final = frozenset({37, 1032})
"""Relocations that call a function for their value, on x86-64 and AArch64."""


def look_at_object(data: bytes, name: str) -> None:
    """Raise ForeignCode, naming the first fault, if an object file does more than compute."""
    try:
        _raise_first(_find_object_faults(elf.Elf.read(data)), name)
    except elf.Malformed as error:
        raise ForeignCode(f"{name} cannot be read: {error}") from None


def look_at_library(data: bytes, name: str) -> None:
    """Raise ForeignCode, naming the first fault, if a library does more than compute.

    The library has to be as the linker wrote it: its section headers are read, which the loader
    does not need and which `strip` removes.
    """
    try:
        _raise_first(_find_library_faults(elf.Elf.read(data)), name)
    except elf.Malformed as error:
        raise ForeignCode(f"{name} cannot be read: {error}") from None


def _raise_first(faults: Iterator[str], name: str) -> None:
    for fault in faults:
        raise ForeignCode(f"{name} has {fault}")


def _find_object_faults(read: elf.Elf) -> Iterator[str]:
    if read.kind != elf.OBJECT:
        yield "another kind than an object"
    for section in read.sections:
        if section.kind in elf.CONSTRUCTORS or _SECTIONS.fullmatch(section.name) is None:
            yield f"the section {section.name!a}"
        if section.name == ".note.GNU-stack" and section.flags & 4:
            yield "an executable stack"
    for symbol in read.symbols(elf.SYMBOLS):
        yield from _find_symbol_faults(symbol)


def _find_symbol_faults(symbol: elf.Symbol) -> Iterator[str]:
    if symbol.kind == elf.INDIRECT:
        yield f"the indirect function {symbol.name!a}"
    if not symbol.name:
        return
    if symbol.section == 0:
        if not symbols.is_called(symbol.name) and symbol.name not in _LOADERS:
            yield f"a call of {symbol.name!a}"
    elif symbol.name in symbols.list_callable_names():
        yield f"a {symbol.name!a} of its own"
    elif symbol.binding and not symbols.is_ours(symbol.name):
        yield f"the name {symbol.name!a} for others to see"


def _find_library_faults(read: elf.Elf) -> Iterator[str]:
    if read.kind != elf.SHARED:
        yield "another kind than a shared library"
    for kind, flags in read.segments:
        if kind == elf.STACK and flags & elf.EXECUTABLE:
            yield "an executable stack"
    yield from _find_loader_orders(read)
    yield from _find_start_code(read)
    for symbol in read.symbols(elf.DYNAMIC_SYMBOLS):
        if symbol.section or symbol.name not in _LOADERS:
            yield from _find_symbol_faults(symbol)
    for _, kind, _ in read.relocations():
        if kind in _INDIRECT:
            yield "a function that is called for an address"


def _find_loader_orders(read: elf.Elf) -> Iterator[str]:
    """Yield dynamic entries that make the loader do more than load the library."""
    dynamic = read.dynamic()
    if not dynamic:
        yield "nothing for the loader"
    needed_names = {text for tag, _, text in dynamic if tag == _NEEDED_TAG}
    shipped_names = set(list_shipped_files())
    for text in sorted(needed_names):
        if _NEEDED.fullmatch(text) is None and text not in shipped_names:
            yield f"need of the library {text!a}"
    for tag, value, text in dynamic:
        if tag == _FLAGS and value & _TEXT_FLAG:
            yield _TAGS[22]
        needs_rpath = text == _BESIDE and needed_names & shipped_names
        if tag in _TAGS and not (tag == 15 and needs_rpath):  # noqa: PLR2004 - the RPATH
            yield f"{_TAGS[tag]}{f' {text!a}' if text else ''}"


def _find_start_code(read: elf.Elf) -> Iterator[str]:
    """Yield the functions that run at loading or unloading, other than the linker's own two."""
    entries = {tag: value for tag, value, _ in read.dynamic()}
    for (name, tag), size in _CODE.items():
        place = next((section for section in read.sections if section.name == name), None)
        if tag in entries and (place is None or place.address != entries[tag] or place.size > size):
            yield f"code of its own in {name}"
    names = {symbol.value: symbol.name for symbol in read.symbols(elf.SYMBOLS) if symbol.section}
    targets = {place: addend for place, _, addend in read.relocations()}
    for (tag, length), (name, linker_function) in _LISTS.items():
        if entries.get(length, 0) > _POINTER:
            yield f"{entries[length] // _POINTER} functions in {name!a}"
        elif (
            entries.get(length)
            and names
            and names.get(targets.get(entries.get(tag, 0), -1)) != linker_function
        ):
            yield f"another function than {linker_function} in {name!a}"
    for symbol in read.symbols(elf.SYMBOLS):
        if symbol.section and symbol.name in symbols.list_callable_names():
            yield f"a {symbol.name!a} of its own"
