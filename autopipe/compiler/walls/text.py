"""Checks LLVM IR before its machine code runs, and CUDA C++ before nvcc reads it.

Outside of functions, the first word of each line of LLVM IR says what the line is. Text that comes
from a module stands in quotes, with its own quotes and line ends escaped. So a line can not pretend
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
"""What lines begin with that say nothing about symbols."""

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
"""What TVM asks of the preprocessor."""
_BEYOND: Final = re.compile(r"\b(asm|__asm__|__asm|__attribute__|_Pragma|__declspec)\b")
"""What is no arithmetic."""
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
"""How TVM copies to shared memory while a kernel computes, as pipelined schedules ask for."""


def look_through(library: "tvm.runtime.Module") -> None:
    """Raise ForeignCode if the LLVM IR of a library holds something foreign."""
    modules = [library]
    while modules:
        module = modules.pop()
        modules.extend(module.imports)
        if module.kind == "llvm":
            check_llvm_ir(module.inspect_source("ll"))


def check_llvm_ir(text: str) -> None:
    """Raise ForeignCode if the text of an LLVM module holds something foreign."""
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
    found = _FUNCTION.match(line)
    if found is None:
        raise ForeignCode(f"the code has {_shorten_text(line)}")
    name, words = found["quoted"] or found["bare"], frozenset(found["head"].split())
    if found["kind"] == "declare":
        if not symbols.is_instruction(name) and not symbols.is_called(name):
            raise ForeignCode(f"the code calls {_shorten_text(name)}")
    elif not words & _LOCAL and not symbols.is_ours(name):
        raise ForeignCode(f"the code defines {_shorten_text(name)}")
    if name in symbols.list_callable_names() and found["kind"] == "define":
        raise ForeignCode(f"the code has a {_shorten_text(name)} of its own")
    _check_section(found["rest"])


def _check_global(line: str) -> None:
    found = _GLOBAL.match(line)
    if found is None:
        raise ForeignCode(f"the code has {_shorten_text(line)}")
    name, rest = found["quoted"] or found["bare"], found["rest"]
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
    """Refuse named sections, and data that is placed in front of a function."""
    found = _SECTION.search(rest)
    if found is not None and found[1] not in _SECTIONS:
        raise ForeignCode(f"the code has the section {_shorten_text(found[1])}")
    if _HIDDEN.search(rest.split('"', 1)[0]) is not None:
        raise ForeignCode("the code has data in front of a function")


def look_at_kernels(source: str) -> None:
    """Raise ForeignCode if the CUDA C++ of kernels holds something foreign; nvcc is not run."""
    for line in _COPY.sub("", source.replace("\\\n", " ")).split("\n"):
        if line.strip().startswith(("#", "%:", "??=")):
            if _DIRECTIVE.fullmatch(line) is None:
                raise ForeignCode(f"the kernels have the line {_shorten_text(line)}")
        elif (found := _BEYOND.search(line.split("//", 1)[0])) is not None:
            raise ForeignCode(f"the kernels have {_shorten_text(found[0])}")


def _shorten_text(text: str) -> str:
    return ascii(text[:80])
