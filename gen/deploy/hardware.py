"""What a package brings for the fabric of its board: the bitstream that was made of a build, and how it is loaded."""

import json
from pathlib import Path

from boards.board import Board
from cores.config import ConfigError, NpuConfig
from cores.errors import NpugenError
from gen.files.read import read_file, reason

__all__ = ["CONFIG_FILE", "PYNQ_OVERLAY", "HardwareError", "hardware_files", "require_build"]

#: Where a build has its machine.
CONFIG_FILE = "config.json"
#: What only PYNQ needs: its description of the design.
PYNQ_OVERLAY = "npu.hwh"
#: What PYNQ loads, both of them.
_PYNQ = ("npu.bit", PYNQ_OVERLAY)
#: What `build` writes for Linux.
_LINUX = ("npu.dtso", "load.sh")
#: Bytes of a manifest, far beyond what is written.
_MAX_MANIFEST = 1 << 20
#: Where tools leave the bitstream, beside the build itself.
_PLACES = ("", "output_files")


class HardwareError(NpugenError):
    """A folder that has no bitstream of this machine on this board."""

    code = "bad-build"


def hardware_files(folder: Path, board: Board, config: NpuConfig) -> dict[str, bytes]:
    """File name -> content, of the ``folder`` of a build whose bitstream has been made. Raises HardwareError, OSError.
    """
    if board.linux is None:
        raise HardwareError(f"{folder}: {board.name} has no processor that could load it; its host does")
    _require_same(folder, board, config)
    found = {name: read_file(folder / name) for name in _LINUX}
    whole = [folder / place / board.linux.bitstream for place in _PLACES]
    bitstreams = [path for path in whole if path.is_file()][:1]
    if all((folder / name).is_file() for name in _PYNQ):
        bitstreams += [folder / name for name in _PYNQ]
    if not bitstreams:
        raise HardwareError(f"{folder}: has neither {board.linux.bitstream} nor {' and '.join(_PYNQ)}: let the board's "
                            "tool make the bitstream first")
    return found | {path.name: read_file(path) for path in bitstreams}


def require_build(folder: Path) -> tuple[str, NpuConfig]:
    """The board and the machine that the build in ``folder`` is of. Raises HardwareError."""
    try:
        name = json.loads(read_file(folder / "manifest.json", _MAX_MANIFEST))["board"]
        return name, NpuConfig.from_json(read_file(folder / CONFIG_FILE, _MAX_MANIFEST).decode())
    except (OSError, ValueError, KeyError, TypeError, RecursionError, ConfigError) as error:
        raise HardwareError(f"{folder}: is no build, or damaged ({reason(error)})") from None


def _require_same(folder: Path, board: Board, config: NpuConfig) -> None:
    """Raises HardwareError for the build of another machine, or for another board."""
    name, built = require_build(folder)
    if name != board.name:
        raise HardwareError(f"{folder}: was built for the board {name}, not for {board.name}")
    if built.digest != config.digest:
        raise HardwareError(f"{folder}: is another machine than that of the program; compile it with --config "
                            f"{folder / CONFIG_FILE}")
