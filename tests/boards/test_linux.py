"""What Linux needs of a board: the overlay in front of a tree like its kernel's, and the script that loads it."""

import os
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from boards.board import Board
from boards.linux import LinuxTree
from boards.registry import BOARDS
from gen.hw.export import vendor_project

LINUX = [board for board in BOARDS.values() if board.linux is not None]
WITH_LINUX = pytest.mark.parametrize("board", LINUX, ids=lambda board: board.name)

#: Of the kernels' own trees, what overlays refer to.
_KERNEL = {
    "xcup": """
        / { #address-cells = <2>; #size-cells = <2>;
            gic: interrupt-controller@f9010000 { #interrupt-cells = <3>; reg = <0x0 0xf9010000 0x0 0x10000>; };
            zynqmp_clk: clock-controller { #clock-cells = <1>; };
            fpga_full: fpga-region { compatible = "fpga-region"; }; };""",
    "xc7": """
        / { #address-cells = <1>; #size-cells = <1>;
            intc: interrupt-controller@f8f01000 { #interrupt-cells = <3>; reg = <0xf8f01000 0x1000>; };
            clkc: clkc@100 { #clock-cells = <1>; reg = <0x100 0x100>; };
            fpga_full: fpga-region { compatible = "fpga-region"; }; };""",
    "cyclonev": """
        / { #address-cells = <1>; #size-cells = <1>;
            intc: interrupt-controller@fffed000 { #interrupt-cells = <3>; reg = <0xfffed000 0x1000>; };
            soc { #address-cells = <1>; #size-cells = <1>;
                base_fpga_region { compatible = "fpga-region"; };
                fpga_bridge0: fpga_bridge@ff400000 { reg = <0xff400000 0x100000>; };
                fpga_bridge3: fpga_bridge@ffc25080 { reg = <0xffc25080 0x4>; }; }; };""",
}


def project(board: Board) -> dict[str, str]:
    return vendor_project(board, board.config(16))


def applied(board: Board, text: str, folder: Path) -> Any:
    """The device tree with the overlay in it, by the parser of the Zephyr project. It knows no /plugin/: what that
    leaves to be found by the kernel is there.
    """
    dtlib = pytest.importorskip("devicetree.dtlib", reason="the package devicetree reads device trees")
    header, plugin, nodes = text.partition("/plugin/;\n")
    assert "/dts-v1/;" in header and plugin
    (folder / "whole.dts").write_text(f"/dts-v1/;\n{_KERNEL[board.family]}\n{nodes}")
    return dtlib.DT(str(folder / "whole.dts"))


def region(tree: Any, board: Board) -> Any:
    reference = board.linux.region
    return tree.get_node(reference[2:-1]) if reference.startswith("&{") else tree.label2node[reference[1:]]


@WITH_LINUX
def test_the_overlay_names_what_the_kernel_and_the_driver_look_for(board: Board, tmp_path: Path):
    """Registers and interrupt of the block design, in a node that UIO calls as `uio:npu` has it."""
    tree = applied(board, project(board)["npu.dtso"], tmp_path)
    found = region(tree, board)
    assert found.props["firmware-name"].to_string() == board.linux.bitstream and "ranges" in found.props
    (node,) = [node for node in found.nodes.values() if node.name.startswith("npu")]
    assert node.name == f"npu@{board.registers_base:x}" and board.driver_device == f"uio:{node.name.split('@')[0]}"
    cells = node.props["reg"].to_nums()
    assert len(cells) == 2 * found.props["#address-cells"].to_num() == 2 * found.props["#size-cells"].to_num()
    half = len(cells) // 2
    assert int("".join(f"{cell:08x}" for cell in cells[:half]), 16) == board.registers_base
    assert cells[-1] == 0x1000 and not any(cells[half:-1])
    assert node.props["compatible"].to_string() == "generic-uio"
    assert node.props["interrupts"].to_nums() == [0, board.linux.interrupt, 4]
    assert node.props["interrupt-parent"].to_node().labels == [board.linux.interrupt_controller]


@WITH_LINUX
def test_the_overlay_sets_the_clock_of_the_bitstream(board: Board, tmp_path: Path):
    files = project(board)
    if not board.linux.clock_provider:
        assert "xlnx,fclk" not in files["npu.dtso"]
        return
    clock = region(applied(board, files["npu.dtso"], tmp_path), board).nodes["clocking"]
    (rate,) = clock.props["assigned-clock-rates"].to_nums()
    asked = re.search(r"FREQMHZ \{([\d.]+)\}", files["vivado_project.tcl"])
    assert rate == float(asked[1]) * 1e6
    for name in ("clocks", "assigned-clocks"):
        provider, number = words(clock.props[name])
        assert label(clock.dt, provider) == board.linux.clock_provider and number == board.linux.clock


def words(prop: Any) -> list[int]:
    """Of numbers and of what they refer to."""
    return [int.from_bytes(prop.value[at:at + 4], "big") for at in range(0, len(prop.value), 4)]


def label(tree: Any, phandle: int) -> str:
    return tree.phandle2node[phandle].labels[0]


@pytest.mark.parametrize("macs, width", [(32, 1), (64, 0)])
def test_the_overlay_sets_the_width_of_the_memory_port(macs: int, width: int, tmp_path: Path):
    """As the block design has it; 128 bits are 0."""
    board = BOARDS["zu3eg"]
    files = vendor_project(board, board.config(macs))
    asked = int(re.search(r"DATA_WIDTH \{(\d+)\}", files["vivado_project.tcl"])[1])
    assert asked == {0: 128, 1: 64}[width]
    afi = region(applied(board, files["npu.dtso"], tmp_path), board).nodes["afi"]
    assert words(afi.props["config-afi"]) == [4, width, 5, width], "the registers of AFIFM2"



@WITH_LINUX
def test_bridges_are_opened(board: Board, tmp_path: Path):
    found = region(applied(board, project(board)["npu.dtso"], tmp_path), board)
    bridges = words(found.props["fpga-bridges"]) if "fpga-bridges" in found.props else []
    assert [label(found.dt, bridge) for bridge in bridges] == list(board.linux.bridges)


def test_a_wrong_label_is_found(tmp_path: Path):
    board = BOARDS["zu3eg"]
    dtlib = pytest.importorskip("devicetree.dtlib", reason="the package devicetree reads device trees")
    with pytest.raises(dtlib.DTError, match="zynqmp_clock"):
        applied(board, project(board)["npu.dtso"].replace("&zynqmp_clk ", "&zynqmp_clock "), tmp_path)


def test_a_clock_has_a_provider():
    with pytest.raises(ValueError, match="clock 71 and its provider '' go together"):
        LinuxTree(region="&r", cells=1, interrupt_controller="i", interrupt=1, bitstream="b",
                  processor_bits=64, c_system="c", clock=71)


@pytest.fixture(params=["zu3eg", "zynq7020", "cyclonev"])
def machine(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Board, Path]:
    """The folder of a board's bitstream, and one that stands for the root of its file system. Its kernel makes a UIO
    device once an overlay is applied; its programs write down what they are asked.
    """
    board = BOARDS[request.param]
    build, root, programs = tmp_path / "build", tmp_path / "root", tmp_path / "bin"
    for folder in (build, programs, root / "sys/kernel/config/device-tree/overlays", root / "sys/class/uio/uio4",
                   root / "dev"):
        folder.mkdir(parents=True)
    for name, text in project(board).items():
        (build / name).write_text(text)
    (build / board.linux.bitstream).write_text("bits")
    (root / "sys/class/uio/uio4/name").write_text("npu\n")
    scripts = {"dtc": 'for last; do :; done; cp "$last" "${8:?}"', "modprobe": '[ "$1" != "${MISSING:-}" ] || exit 1'}
    for name, script in scripts.items():
        (programs / name).write_text(f'#!/bin/sh\necho "{name} $*" >> "{tmp_path}/asked"\n{script}\n')
        (programs / name).chmod(0o755)
    return board, tmp_path


def load(place: Path, *arguments: str, **variables: str) -> tuple[int, str]:
    done = subprocess.run(["sh", str(place / "build/load.sh"), *arguments], capture_output=True, text=True, env={
        "PATH": f"{place / 'bin'}:{os.defpath}", "NPUGEN_ROOT": str(place / "root"), **variables})
    assert not done.stdout
    return done.returncode, done.stderr


def test_loading(machine):
    """The bitstream lies where the kernel looks for it before the overlay that names it is applied."""
    board, place = machine
    assert load(place, "96") == (0, "")
    firmware = place / "root/lib/firmware"
    assert (firmware / board.linux.bitstream).read_text() == "bits"
    overlay = place / "root/sys/kernel/config/device-tree/overlays/npu/dtbo"
    assert overlay.read_text() == (place / "build/npu.dtso").read_text()
    assert (place / "asked").read_text().splitlines()[1:] == [
        "modprobe uio_pdrv_genirq of_id=generic-uio", f"modprobe u-dma-buf udmabuf0={96 << 20}"]


@pytest.mark.parametrize("what, arguments, variables, said", [
    ("", ("much",), {}, "much: must be a number of MiB"),
    ("", ("0",), {}, "0: must be a number of MiB"),
    ("build/npu.dtso", (), {}, "npu.dtso is missing"),
    ("bin/dtc", (), {}, "dtc is missing: install device-tree-compiler"),
    ("root/sys/kernel/config/device-tree/overlays", (), {}, "this kernel takes no device tree overlays"),
    ("", (), {"MISSING": "uio_pdrv_genirq"}, "no kernel module uio_pdrv_genirq"),
    ("", (), {"MISSING": "u-dma-buf"}, "no kernel module u-dma-buf, or less than 64 MiB of CMA"),
    ("root/sys/class/uio/uio4/name", (), {}, "no UIO device is called npu"),
])
def test_what_is_missing_is_said(machine, what, arguments, variables, said):
    _, place = machine
    if what:
        path = place / what
        path.rmdir() if path.is_dir() else path.unlink()
    status, error = load(place, *arguments, **variables)
    assert status == 1 and said in error and error.startswith("load.sh: error: ") and error.count("\n") == 1


@pytest.mark.parametrize("mib, enough", [("64", True), ("65", False)])
def test_a_buffer_of_before(machine, mib: str, enough: bool):
    """It stays if it is large enough."""
    _, place = machine
    (place / "root/dev/udmabuf0").touch()
    (place / "root/sys/class/u-dma-buf/udmabuf0").mkdir(parents=True)
    (place / "root/sys/class/u-dma-buf/udmabuf0/size").write_text(f"{64 << 20}\n")
    status, error = load(place, mib)
    assert "u-dma-buf" not in (place / "asked").read_text()
    assert (status, error) == (0, "") if enough else status == 1 and "with 67108864 bytes, fewer than 65 MiB" in error
