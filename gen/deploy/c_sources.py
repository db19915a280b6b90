"""The C library with what is generated for a machine and a program."""

import hashlib
from collections.abc import Mapping
from pathlib import Path

import jinja2

from boards.board import Board
from cores.config import NpuConfig
from gen.files.read import read_file
from gen.hw.export import driver_header
from npudriver import DeployedProgram

__all__ = ["board_files", "board_header", "c_sources", "library_files", "template"]

_LIBRARY = Path(__file__).resolve().parents[2] / "npudriver" / "c"
#: Of one program, or of a whole model.
_EXAMPLES = {"doctor.c", "example.c", "Makefile"}


def c_sources(config: NpuConfig, program: DeployedProgram, board: Board,
              sample: Mapping[str, bytes] | None) -> dict[str, bytes]:
    """File name -> content: library, example, generated headers, the program; ``sample``: more of them."""
    files = library_files(config) | board_files(board)
    files |= {name: read_file(_LIBRARY / name) for name in sorted(_EXAMPLES)}
    files["npugen_program.h"] = template("npugen_program.h.jinja").render(program=program).encode()
    return files | {"code.bin": program.code, "data.bin": program.constants} | dict(sample or {})


def library_files(config: NpuConfig) -> dict[str, bytes]:
    """The C library for a machine."""
    files = {path.name: read_file(path) for path in sorted(_LIBRARY.iterdir())
             if path.is_file() and path.name.startswith("npugen")}
    return files | {"npugen_regs.h": driver_header(config).encode()}


def board_files(board: Board) -> dict[str, bytes]:
    """``npugen_board.h`` of a board with a processor; nothing where registers are wherever the user's design has them.
    """
    if board.linux is None or board.registers_base is None:
        return {}
    return board_header(board.title, board.registers_base, board.linux.controller_interrupt, board.linux.c_system)


def board_header(name: str, registers: int, interrupt: int, system: str = "") -> dict[str, bytes]:
    """``npugen_board.h``: where the machine's ``registers`` are for the processor, its ``interrupt`` there, and what
    npugen_arm.h calls the ``system`` of that, if it has it."""
    return {"npugen_board.h": template("npugen_board.h.jinja").render(
        name=name, registers=registers, interrupt=interrupt, system=system).encode()}


def template(name: str) -> jinja2.Template:
    """One of ``gen/templates``, with filters for C."""
    environment = jinja2.Environment(loader=jinja2.PackageLoader("gen"), undefined=jinja2.StrictUndefined,
                                     keep_trailing_newline=True)
    environment.filters |= {"c_string": _c_string, "c_digest": _c_digest, "c_comment": _c_comment, "c_float": repr}
    return environment.get_template(name)


def _c_digest(data: bytes) -> str:
    """The SHA-256 of some bytes, as the values of an array."""
    return ", ".join(map(str, hashlib.sha256(data).digest()))


def _c_comment(text: str) -> str:
    """What is within a comment, whatever the text."""
    return "".join(one if one.isprintable() and one.isascii() else "?" for one in text).replace("*/", "* /").replace(
        "/*", "/ *").replace("\\", "?")


def _c_string(text: str) -> str:
    """A literal; what is no plain character is written as its UTF-8 bytes in octal, which end after three digits."""
    plain = "".join(chr(byte) if 32 <= byte < 127 and chr(byte) not in '"\\?' else f"\\{byte:03o}"
                    for byte in text.encode("utf-8", "replace"))
    return f'"{plain}"'
