"""The boards that can be named on the command line."""

from cores.errors import ArgumentError

from .board import Board

__all__ = ["BOARDS", "BoardError", "get_board"]


class BoardError(ArgumentError):
    """An unknown board; the message lists those known."""


_BOARDS = (
    Board(
        name="zu3eg", title="Ultra96-V2", family="xcup", part="xczu3eg-sbva484-1-i", clock_mhz=333,
        resources={"lut": 70_560, "ff": 141_120, "dsp": 360, "bram36": 216},
        multiplier_width=27, memory_bus_bits=(32, 64, 128), address_width=40,
        project={"vivado_project.tcl": "vivado_project.tcl.jinja", "npu_axi.v": "npu_axi.v.jinja"},
    ),
    Board(
        name="zynq7020", title="Arty Z7-20, PYNQ-Z1", family="xc7", part="xc7z020clg400-1", clock_mhz=150,
        resources={"lut": 53_200, "ff": 106_400, "dsp": 220, "bram36": 140},
        multiplier_width=25, memory_bus_bits=(32, 64), address_width=32,
        amaranth_platform="amaranth_boards.arty_z7:ArtyZ720Platform",
        project={"vivado_project.tcl": "vivado_project.tcl.jinja", "npu_axi.v": "npu_axi.v.jinja"},
    ),
    Board(
        # Two 18x19 products a DSP block: two pixels on one multiplier would take the whole block and win nothing.
        name="cyclonev", title="DE10-Nano", family="cyclonev", part="5CSEBA6U23I7", clock_mhz=125,
        resources={"lut": 83_820, "ff": 167_640, "dsp": 112, "m10k": 553},
        multiplier_width=18, memory_bus_bits=(32, 64, 128, 256), address_width=32,
        amaranth_platform="amaranth_boards.de10_nano:DE10NanoPlatform",
        project={"quartus_project.tcl": "quartus_project.tcl.jinja", "npu_hw.tcl": "npu_hw.tcl.jinja"},
    ),
    Board(
        name="ecp5", title="ULX3S-85F", family="ecp5", part="LFE5U-85F-6BG381C", clock_mhz=85,
        resources={"lut": 83_640, "ff": 83_640, "dsp": 156, "ebr": 208},
        multiplier_width=18, memory_bus_bits=(64, 128, 256), address_width=32,
        amaranth_platform="amaranth_boards.ulx3s:ULX3S_85F_Platform",
        nextpnr=("nextpnr-ecp5", "--85k", "--package", "CABGA381", "--speed", "6"),
        project={"Makefile": "ecp5.mk.jinja"},
    ),
)

BOARDS = {board.name: board for board in _BOARDS}


def get_board(name: str) -> Board:
    """Raises BoardError when there is no board of this name."""
    try:
        return BOARDS[name]
    except KeyError:
        raise BoardError(f"unknown board {name!r}; known: {', '.join(BOARDS)}") from None
