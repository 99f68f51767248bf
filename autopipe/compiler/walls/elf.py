"""Read 64-bit ELF files: sections, symbols, relocations and dynamic entries.

Every offset is checked against the size of the file. An offset outside the file is refused.
"""

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Self

_HEADER: Final = struct.Struct("16xHHIQQQIHHHHHH")
_SECTION: Final = struct.Struct("IIQQQQIIQQ")
_SYMBOL: Final = struct.Struct("IBBHQQ")
_SEGMENT: Final = struct.Struct("IIQQQQQQ")
_ADDEND: Final = struct.Struct("QQq")
_PAIR: Final = struct.Struct("QQ")
_MOST: Final = 1 << 20
"""Entries of a table; TVM's largest models have some thousand."""

MAGIC: Final = b"\x7fELF"
"""The first bytes of an ELF file."""

OBJECT, SHARED = 1, 3
"""Kinds of files."""

PROGBITS, SYMBOLS, STRINGS, ADDENDS, DYNAMIC, NOBITS, DYNAMIC_SYMBOLS = 1, 2, 3, 4, 6, 8, 11
CONSTRUCTORS: Final = frozenset({14, 15, 16})
"""Kinds of sections with functions that run when a file is loaded or unloaded."""

INDIRECT = 10
"""Kind of a symbol that a function resolves when a file is loaded (IFUNC)."""

EXECUTABLE, STACK = 1, 0x6474E551


class Malformed(Exception):  # noqa: N818 - the name states the fault
    """The file is not an ELF file, or its parts contradict each other."""


@dataclass(frozen=True, slots=True)
class Section:
    """A section."""

    name: str
    kind: int
    flags: int
    address: int
    offset: int
    size: int
    link: int


@dataclass(frozen=True, slots=True)
class Symbol:
    """An entry of a symbol table."""

    name: str
    kind: int
    binding: int
    section: int
    """The index of its section; 0 where it is imported."""
    value: int


@dataclass(frozen=True, slots=True)
class Elf:
    """The parsed headers and sections of an ELF file."""

    data: bytes
    kind: int
    sections: tuple[Section, ...]
    segments: tuple[tuple[int, int], ...]
    """Kind and flags of each."""

    @classmethod
    def read(cls, data: bytes) -> Self:
        """Read headers and sections. Raises Malformed."""
        if data[:7] != MAGIC + b"\x02\x01\x01":
            raise Malformed("it is no ELF file of 64 bits, little-endian")
        kind, _, _, _, first, start, _, _, size, count, width, section_count, names_index = (
            _unpack_at(_HEADER, data, 0)
        )
        if (count and size != _SEGMENT.size) or (section_count and width != _SECTION.size):
            raise Malformed("its tables have entries of another size")
        parts = [
            _unpack_at(_SEGMENT, data, first + _SEGMENT.size * index) for index in range(count)
        ]
        segments = tuple((part[0], part[1]) for part in parts)
        rows = [
            _unpack_at(_SECTION, data, start + _SECTION.size * index)
            for index in range(section_count)
        ]
        if rows and names_index >= len(rows):
            raise Malformed("its sections have no names")
        if not rows:
            raise Malformed("it has no sections")
        names_offset, names_size = rows[names_index][4], rows[names_index][5]
        texts = _slice_bytes(data, names_offset, names_size)
        sections = tuple(
            Section(_read_text(texts, name), kind_, flags, address, offset, size_, link)
            for name, kind_, flags, address, offset, size_, link, *_ in rows
        )
        return cls(data, kind, sections, segments)

    def content(self, section: Section) -> bytes:
        """Return the bytes of a section. Raises Malformed."""
        return (
            b"" if section.kind == NOBITS else _slice_bytes(self.data, section.offset, section.size)
        )

    def symbols(self, kind: int) -> Iterator[Symbol]:
        """Yield the symbols of all tables of a kind, `SYMBOLS` or `DYNAMIC_SYMBOLS`."""
        for table in self.sections:
            if table.kind == kind:
                texts = self._read_strings(table)
                for name, info, _, section, value, _ in self._read_entries(_SYMBOL, table):
                    yield Symbol(_read_text(texts, name), info & 15, info >> 4, section, value)

    def dynamic(self) -> list[tuple[int, int, str]]:
        """Return the entries of the dynamic section: tag, value, and the text at that value."""
        return [
            (tag, value, _read_text(texts, value) if tag in _NAMES else "")
            for table in self.sections
            if table.kind == DYNAMIC
            for texts in [self._read_strings(table)]
            for tag, value in self._read_entries(_PAIR, table)
        ]

    def relocations(self) -> Iterator[tuple[int, int, int]]:
        """Yield the relocations: the place that the loader changes, the kind and the addend."""
        for table in self.sections:
            if table.kind == ADDENDS and table.flags & 2:
                for place, info, addend in self._read_entries(_ADDEND, table):
                    yield place, info & 0xFFFFFFFF, addend

    def _read_entries(self, form: struct.Struct, table: Section) -> Iterator[tuple[int, ...]]:
        content = self.content(table)
        if len(content) % form.size or len(content) > _MOST * form.size:
            raise Malformed(f"its section {table.name!r} is cut off")
        return form.iter_unpack(content)

    def _read_strings(self, table: Section) -> bytes:
        if table.link >= len(self.sections):
            raise Malformed(f"its section {table.name!r} has no names")
        return self.content(self.sections[table.link])


_NAMES: Final = frozenset({1, 14, 15, 29, 0x6FFFFEFC, 0x6FFFFEFB, 0x7FFFFFFD, 0x7FFFFFFF})
"""Tags with a string value: needed libraries, own name, search paths, audit libraries."""


def _unpack_at(form: struct.Struct, data: bytes, offset: int) -> tuple[int, ...]:
    return form.unpack(_slice_bytes(data, offset, form.size))


def _slice_bytes(data: bytes, offset: int, size: int) -> bytes:
    if offset + size > len(data):
        raise Malformed("it is cut off")
    return data[offset : offset + size]


def _read_text(texts: bytes, offset: int) -> str:
    end = texts.find(b"\0", offset)
    if offset >= len(texts) or end < 0:
        raise Malformed("a name in it is cut off")
    return texts[offset:end].decode("utf-8", "backslashreplace")
