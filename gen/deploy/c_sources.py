"""The C library with what is generated for a machine and a program."""

import hashlib
from collections.abc import Mapping
from pathlib import Path

import jinja2

from cores.config import NpuConfig
from gen.files.read import read_file
from gen.hw.export import driver_header
from npudriver import DeployedProgram

__all__ = ["c_sources"]

_LIBRARY = Path(__file__).resolve().parents[2] / "npudriver" / "c"


def c_sources(config: NpuConfig, program: DeployedProgram, sample: Mapping[str, bytes] | None) -> dict[str, bytes]:
    """File name -> content: library, example, generated headers, the program; ``sample``: more of them.

    A program with an output of signs, which the library does not unpack, has no C part: nothing is given.
    """
    if any(port.signs for port in (*program.inputs, *program.outputs)):
        return {}
    files = {path.name: read_file(path) for path in sorted(_LIBRARY.iterdir()) if path.is_file()}
    files["npugen_regs.h"] = driver_header(config).encode()
    files["npugen_program.h"] = _program_header(program).encode()
    return files | {"code.bin": program.code, "data.bin": program.constants} | dict(sample or {})


def _program_header(program: DeployedProgram) -> str:
    environment = jinja2.Environment(loader=jinja2.PackageLoader("gen"), undefined=jinja2.StrictUndefined,
                                     keep_trailing_newline=True)
    environment.filters |= {"c_string": _c_string, "c_digest": _c_digest}
    return environment.get_template("npugen_program.h.jinja").render(program=program)


def _c_digest(data: bytes) -> str:
    """The SHA-256 of some bytes, as the values of an array."""
    return ", ".join(map(str, hashlib.sha256(data).digest()))


def _c_string(text: str) -> str:
    """A literal; what is no plain character is written as its UTF-8 bytes in octal, which end after three digits."""
    plain = "".join(chr(byte) if 32 <= byte < 127 and chr(byte) not in '"\\?' else f"\\{byte:03o}"
                    for byte in text.encode("utf-8", "replace"))
    return f'"{plain}"'
