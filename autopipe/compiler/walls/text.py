"""Check LLVM IR before its machine code runs, and CUDA C++ before nvcc compiles it.

Outside of functions, the first word of each line of LLVM IR determines its kind. Text that comes
from a module stands in quotes, with its own quotes and line ends escaped. So a line cannot pretend
to be another.
"""

import re
from typing import TYPE_CHECKING, Final

from autopipe.compiler.codegen.configure_tiles import SYSTEM_CALL
from autopipe.compiler.walls import symbols
from autopipe.compiler.walls.foreign_code import ForeignCode

if TYPE_CHECKING:
    import tvm

_BEGINNINGS: Final = (";", "%", "}", "source_filename = ", "target ", "attributes #")
"""First characters of lines without symbols."""

_NAME = r'[@$](?:"(?P<quoted>[^"]*)"|(?P<bare>[\w.$-]+))'
_GLOBAL: Final = re.compile(_NAME + r" = (?P<rest>.*)")
_FUNCTION: Final = re.compile(
    r"(?P<kind>define|declare) (?P<head>[^@]*)" + _NAME + r"\((?P<rest>.*)"
)
_LABEL: Final = re.compile(r'(?:"[^"]*"|[\w.$-]+):')
_NAMED_METADATA: Final = re.compile(r"!(llvm\.(dbg\.cu|module\.flags|ident)|\d+) = ")
_ASSEMBLY: Final = re.compile(r" asm (?:(?:sideeffect|alignstack|inteldialect|unwind) )*\"")
_SECTION: Final = re.compile(r' section "([^"]*)"')
_SECTIONS: Final = frozenset({".text.tvm.fp16.conv", ".lrodata"})
_LOCAL: Final = frozenset({"private", "internal"})
_HIDDEN: Final = re.compile(r" (prologue|prefix|personality|gc) ")
_NOTHING: Final = re.compile(r"appending global \[0 x ")

_DIRECTIVE: Final = re.compile(
    r"\s*#(\s*(if|ifdef|ifndef|elif|else|endif|undef|error)\b.*|\s*include <[\w./]+>\s*|"
    r"\s*pragma unroll\b[\w ()]*|\s*define (__asm__ asm|(?!.*\basm\b).*))"
)
"""The preprocessor directives that TVM writes."""
_BEYOND: Final = re.compile(r"\b(asm|__asm__|__asm|__attribute__|_Pragma|__declspec)\b")
"""Words of C++ that are no arithmetic."""
_COPY: Final = re.compile(
    r"""asm\ volatile\("cp\.async\.(ca|cg)\.shared\.global\ \[%0\],\ \[%1\],\ %2;"\s*
        ::\ "r"\(dst_addr\),\ "l"\(src_p\),\ "n"\(\d+\)\);
    | __asm__\ __volatile__\(\s*
        "\{\\n"\s*
        "\ \.reg\ \.pred\ p;\\n"\s*
        "\ setp\.eq\.u32\ p,\ %3,\ 1;\\n"\s*
        "\ @p\ cp\.async\.(ca|cg)\.shared\.global\ \[%0\],\ \[%1\],\ %2;\\n"\s*
        "\ @!p\ st\.shared(\.v[24])?\.u32\ \[%0\],\ \{%4(,\ %4)*\};\\n"\s*
        "\}\\n"\s*
        ::\ "r"\(dst_addr\),\ "l"\(src_p\),\ "n"\(\d+\),\ "r"\(predicate\),\ "r"\(0\)\s*\);
    | asm\ volatile\("cp\.async\.(commit_group|wait_all|wait_group\ (\d+|%0));"
        [\s:]*("n"\((\d+|\w+)\))?[\s:]*("memory")?\s*\);
    """,
    re.VERBOSE,
)
"""TVM's asynchronous copies to shared memory in pipelined schedules."""


def look_through(library: "tvm.runtime.Module") -> None:
    """Raise ForeignCode if the LLVM IR of a library does more than compute."""
    modules = [library]
    while modules:
        module = modules.pop()
        modules.extend(module.imports)
        if module.kind == "llvm":
            check_llvm_ir(module.inspect_source("ll"))


def check_llvm_ir(text: str) -> None:
    """Raise ForeignCode if the text of an LLVM module does more than compute."""
    if _ASSEMBLY.search(text.replace(SYSTEM_CALL, "asked")) is not None:
        raise ForeignCode("the code has assembly in it")
    for line in text.split("\n"):
        if line.startswith(" "):
            continue
        if line.startswith(("define ", "declare ")):
            _check_function(line)
        elif line.startswith(("@", "$")):
            _check_global(line)
        elif line.startswith("!"):
            if _NAMED_METADATA.match(line) is None:
                raise ForeignCode(f"the code has metadata {_shorten_text(line)}")
        elif line and not line.startswith(_BEGINNINGS) and _LABEL.match(line) is None:
            raise ForeignCode(f"the code has {_shorten_text(line)}")


def _check_function(line: str) -> None:
    match = _FUNCTION.match(line)
    if match is None:
        raise ForeignCode(f"the code has {_shorten_text(line)}")
    name, words = match["quoted"] or match["bare"], frozenset(match["head"].split())
    if match["kind"] == "declare":
        if not symbols.is_instruction(name) and not symbols.is_called(name):
            raise ForeignCode(f"the code calls {_shorten_text(name)}")
    elif not words & _LOCAL and not symbols.is_ours(name):
        raise ForeignCode(f"the code defines {_shorten_text(name)}")
    if name in symbols.list_callable_names() and match["kind"] == "define":
        raise ForeignCode(f"the code has a {_shorten_text(name)} of its own")
    _check_section(match["rest"])


def _check_global(line: str) -> None:
    match = _GLOBAL.match(line)
    if match is None:
        raise ForeignCode(f"the code has {_shorten_text(line)}")
    name, rest = match["quoted"] or match["bare"], match["rest"]
    if line.startswith("$"):
        return
    words = frozenset(re.split(r"[ (]", rest.split('"', 1)[0])[:12])
    if words & {"alias", "ifunc"}:
        raise ForeignCode(f"the code has another name for a function, {_shorten_text(name)}")
    if name.startswith("llvm."):
        if _NOTHING.match(rest) is None:
            raise ForeignCode(
                f"the code has {_shorten_text(name)}: something runs when it is loaded"
            )
        return
    if not words & _LOCAL and not symbols.is_ours(name):
        raise ForeignCode(f"the code defines {_shorten_text(name)}")
    _check_section(rest)


def _check_section(rest: str) -> None:
    """Raise ForeignCode for named sections, and for data in front of a function."""
    section = _SECTION.search(rest)
    if section is not None and section[1] not in _SECTIONS:
        raise ForeignCode(f"the code has the section {_shorten_text(section[1])}")
    if _HIDDEN.search(rest.split('"', 1)[0]) is not None:
        raise ForeignCode("the code has data in front of a function")


def look_at_kernels(source: str) -> None:
    """Raise ForeignCode if the CUDA C++ of kernels does more than compute; nvcc is not run."""
    for line in _COPY.sub("", source.replace("\\\n", " ")).split("\n"):
        if line.strip().startswith(("#", "%:", "??=")):
            if _DIRECTIVE.fullmatch(line) is None:
                raise ForeignCode(f"the kernels have the line {_shorten_text(line)}")
        elif (match := _BEYOND.search(line.split("//", 1)[0])) is not None:
            raise ForeignCode(f"the kernels have {_shorten_text(match[0])}")


def _shorten_text(text: str) -> str:
    return ascii(text[:80])
