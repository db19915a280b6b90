"""The files of a build: the Verilog, what describes it, and the vendor's project."""

from boards.board import Board
from cores.config import NpuConfig
from gen.bringup.programs import bring_up
from gen.hw.export import descriptions, driver_header, manifest, register_map, vendor_project
from npudriver.bringup import BRINGUP

__all__ = ["build_files"]


def build_files(board: Board, config: NpuConfig) -> dict[str, str | bytes]:
    """File name -> content, of a machine in a board's project; nothing in it depends on when or where it is made."""
    # Amaranth is for what makes hardware alone.
    from cores.emit import emit_verilog

    files: dict[str, str | bytes] = {
        "npu.v": emit_verilog(config),
        "config.json": config.to_json() + "\n",
        "register_map.md": register_map(config),
        "npugen_regs.h": driver_header(config),
        **descriptions(board, config),
        **vendor_project(board, config),
        BRINGUP: bring_up(config).content(),
    }
    return {**files, "manifest.json": manifest(board, config, files)}
