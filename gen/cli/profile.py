"""``gen profile``"""

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich import box
from rich.table import Table

from boards.board import Board
from boards.clock import Clock
from boards.registry import get_board
from gen.cli.calibration import add_calibration_options
from gen.cli.common import add_json_option, console, messages, print_json, status
from gen.cli.compile import add_batch_option, add_compiler_options
from gen.cli.html import add_html_option, command_line, require_html, write_html
from gen.cli.machine import add_machine_options, chosen_board, described, open_given
from gen.cli.memory import add_memory_option, chosen_memory
from gen.cli.plots import add_plots_option, plot_files, write_plots
from gen.cli.profile_sides import machine_options, side_by_side
from gen.files.write import require_writable, write_file

if TYPE_CHECKING:
    from gen.run.application import Application
    from gen.run.report import Measured

#: Of the plot.
_NAME = "profile"
#: Headings of columns that a terminal of so many columns has no room for.
_PIXELS, _WEIGHTS, _NARROW = "idle\npixels", "lacks\nweights", 90
#: Headings of columns that a terminal of so many columns has room for.
_SLOTS, _WIDE = ("slots\na MAC", "by\nlanes"), 100
#: The same, of more columns.
_ENERGY, _WIDEST = "% of\nenergy", 112
#: Beyond any FPGA: what is larger was meant in Hz or kHz.
_MAX_MHZ = 10_000

EXAMPLE = """example:
  %(prog)s examples/digits/digits_int8.onnx --target rtl -o build/profile"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", type=Path, metavar="MODEL.onnx|PROGRAM")
    parser.add_argument("--target", choices=("cycles", "rtl"), default="cycles",
                        help="the time model, or the Verilog (default cycles)")
    parser.add_argument("-o", "--output", type=Path, metavar="DIR", help="write profile.json and a plot there")
    parser.add_argument("--on", type=machine_options, action="append", default=[], metavar="NAME=VALUE[,...]",
                        help="a machine, by its options, such as macs=256,features=gather+fusion,board=zu3eg; given "
                             "twice or more, they are compared layer by layer, with what pruning would save on each")
    add_html_option(parser, "graph, timeline, roofline, memory, noise")
    add_plots_option(parser)
    parser.add_argument("--clock", type=megahertz, metavar="MHZ",
                        help="to reckon with (default: as `build --synth` has estimated it for this machine, else the "
                             "target of the program's board, or of --board)")
    add_memory_option(parser)
    add_compiler_options(parser)
    add_batch_option(parser)
    add_calibration_options(parser)
    add_machine_options(parser, for_model=True)
    add_json_option(parser)


def megahertz(text: str) -> float:
    value = float(text)
    if not 0 < value <= _MAX_MHZ:
        raise argparse.ArgumentTypeError(f"must be above 0 and at most {_MAX_MHZ:,} MHz, not {text}")
    return value


def run(arguments: argparse.Namespace) -> None:
    if arguments.output:
        for name in ("profile.json", *plot_files(arguments, _NAME)):
            require_writable(arguments.output / name)
    if arguments.on:
        return side_by_side(arguments, measure)
    require_html(arguments, arguments.model, arguments.calibrate, arguments.config)
    memory = chosen_memory(arguments)
    application = open_given(arguments, arguments.model)
    with status(f"compiling {arguments.model.name}") as remark:
        program, *_ = application.programs(remark)
    board = program.board or chosen_board(arguments).name
    if arguments.clock:
        clock = Clock(arguments.clock, "given")
    else:
        from gen.hw.clock import clock_of

        clock = clock_of(get_board(board), program.config)
    from gen.run.report import profile_of

    found = records(application, arguments.target, clock, memory)
    profile = {"memory": arguments.memory, "features": list(program.config.features), **profile_of(found, clock),
               "host": _processor(application)}
    if arguments.output:
        write_file(arguments.output / "profile.json", json.dumps(profile, indent=2) + "\n")
        from gen.report.bars import bars

        write_plots(arguments, arguments.output, _NAME, bars(profile, [
            f"{arguments.model.stem}, {arguments.target}",
            f"{described(program.config, board)}; {clock}, memory: {arguments.memory}"]))
        messages.print(f"{arguments.output}: {', '.join(['profile.json', *plot_files(arguments, _NAME)])}",
                       soft_wrap=True)
    if arguments.html:
        from gen.report.whole import whole_report

        with status(f"report of {arguments.model.name}") as remark:
            report = whole_report(application, arguments.model, board=get_board(board), clock=clock, memory=memory,
                                  target=arguments.target, command=command_line(), found=found, progress=remark)
        write_html(arguments.html, report)
    if arguments.json:
        print_json(profile)
    else:
        console.print(described(program.config, program.board), soft_wrap=True)
        show(profile, board)
        if (host := profile["host"]) is not None:
            seconds = 1 / profile["total"]["fps"]
            console.print(f"that is the accelerator alone, {1000 * seconds:.2f} ms; the processor's part of the model "
                          f"({host['segments']} segment{'' if host['segments'] == 1 else 's'}) takes "
                          f"{1000 * host['seconds']:.2f} ms on this computer, of random values, and a board's "
                          f"processor may take many times as long: {1 / (seconds + host['seconds']):,.1f} inferences "
                          "a second with both, one after the other", soft_wrap=True)


def measure(application: "Application", target: str, clock: Clock, memory: Board | None) -> dict[str, Any]:
    """The profile as ``--json`` prints it; ``memory``: None for an ideal one."""
    from gen.run.report import profile_of

    return profile_of(records(application, target, clock, memory), clock)


def records(application: "Application", target: str, clock: Clock, memory: Board | None) -> "list[Measured]":
    """What happens when in each segment of the accelerator, by the time model or on the Verilog."""
    from gen.run.measure import measured

    with status("timing" if target == "cycles" else "simulating") as remark:
        return measured(application, "cycles" if target == "cycles" else "rtl", clock.mhz, memory, remark)


def _processor(application: "Application") -> dict[str, Any] | None:
    """What the segments of the processor take on the one at hand; None if there are none."""
    from gen.run.host_time import host_seconds

    if len(application.segments) == len(application.workloads):
        return None
    with status("the processor's part") as remark:
        seconds = host_seconds(application, remark)
    return {"segments": len(seconds), "seconds": sum(seconds)}


def _slots(part: dict[str, Any]) -> tuple[float | None, float | None]:
    """Of a layer or the total: slots for each multiplication, and for each with channels rounded up to lanes."""
    from gen.run.report import slots_per_mac

    if "slots_per_mac" in part:
        return part["slots_per_mac"], part["slots_per_lane_mac"]
    return slots_per_mac([part])


def _row(layer: dict[str, Any], *, all_waits: bool) -> list[str]:
    def share(cycles: int) -> str:
        return f"{100 * cycles / max(1, layer['cycles']):.1f}"

    waits = {cause: waited for cause, waited in layer["stalls"].items() if all_waits or cause != "wait_weights"}
    cause, waited = max(waits.items(), key=lambda item: item[1], default=("", 0))
    percent = round(100 * waited / max(1, layer["cycles"]))
    slots = [f"{ratio:.2f}" if ratio else "" for ratio in _slots(layer)]
    return [
        layer.get("name", "total"), layer.get("mode", ""), f"{layer['cycles']:,}", f"{100 * layer['utilisation']:.1f}",
        *slots, share(layer["idle_pixels"]), share(layer["idle_lanes"]), share(layer["stalls"]["wait_weights"]),
        f"{cause.removeprefix('wait_').replace('_', ' ')} {percent} %" if percent else "", f"{layer['dram_bytes']:,}",
        _between(*(100 * share for share in layer["energy_share"])) if "energy_share" in layer else "",
    ]


def _between(low: float, high: float) -> str:
    """A range, no finer than it is known."""
    texts = [f"{value:.0f}" for value in (low, high)]
    return texts[0] if texts[0] == texts[1] else " to ".join(texts)


def _rounded(value: float) -> str:
    """To two digits."""
    digits = float(f"{value:.2g}")
    return f"{digits:,.0f}" if digits >= 100 else f"{digits:g}"


def _without(modes: set[str]) -> str:
    return f"; products of {' and '.join(sorted(modes))} layers are not in it" if modes else ""


def show(profile: dict[str, Any], board: str) -> None:
    total = profile["total"]
    headings = ["layer", "mode", "cycles", "% used", *_SLOTS, _PIXELS, "idle\nlanes", _WEIGHTS,
                "waits for", "bytes", _ENERGY]
    narrow = console.width < _NARROW
    rows, footers = [_row(layer, all_waits=narrow) for layer in profile["layers"]], _row(total, all_waits=narrow)
    hidden = (*((_PIXELS, _WEIGHTS) if narrow else ()), *(_SLOTS if console.width < _WIDE else ()),
              *((_ENERGY,) if console.width < _WIDEST else ()))
    if hidden:
        shown = [number for number, heading in enumerate(headings) if heading not in hidden]
        headings, footers = [headings[number] for number in shown], [footers[number] for number in shown]
        rows = [[row[number] for number in shown] for row in rows]
    table = Table(box=box.SIMPLE, show_footer=True, padding=(0, 1, 0, 0))
    for number, (heading, footer) in enumerate(zip(headings, footers, strict=True)):
        # Words are folded when the terminal is narrow, figures are not.
        if heading in ("layer", "mode", "waits for"):
            table.add_column(heading, footer, overflow="fold")
        else:
            width = max(len(text) for text in (*heading.split("\n"), *(row[number] for row in (footers, *rows))))
            table.add_column(heading, footer, justify="right", no_wrap=True, min_width=width)
    for row in rows:
        table.add_row(*row)
    console.print(table)
    if total["slots_per_mac"] is not None:
        console.print(f"multiplier slots issued for each multiplication of the model: {total['slots_per_mac']:.2f}; "
                      f"{total['slots_per_lane_mac']:.2f} with channels rounded up to lanes")
    console.print("% of a layer's cycles: multipliers in use; lanes at work without a channel, tap or weight; what it "
                  f"waited for most. More in {_WIDEST} columns, or with --json" if narrow else
                  "% of a layer's cycles: multipliers in use; lanes at work without an output pixel, and without a "
                  "channel, tap or weight; weights that are not there in time; what else it waited for most")
    if any(layer["utilisation"] > 1 for layer in profile["layers"]):
        console.print("more than 100 % used: Winograd layers need fewer multiplications than they have MACs",
                      soft_wrap=True)
    if total["batch"] > 1:
        console.print(f"a batch of {total['batch']} samples: {total['cycles_per_sample']:,.0f} cycles a sample")
    from gen.run.energy_ratio import HIGH, LOW, UNCOUNTED

    low, high = total["energy_macs"]
    without = {layer["mode"] for layer in profile["layers"]} & set(UNCOUNTED)
    of_batch = " of the batch" if total["batch"] > 1 else ""
    console.print(f"energy{of_batch}: as {_rounded(low / 1e6)} to {_rounded(high / 1e6)} M multiplications of 8 bits, "
                  f"if a byte of memory is worth {_rounded(LOW.memory_byte)} to {_rounded(HIGH.memory_byte)} of them: "
                  f"for ratios, no watts (docs/energy.md){_without(without)}")
    clock = Clock(profile["clock_mhz"], profile["clock"])
    console.print(f"{total['macs']:,} MACs; {total['fps']:,.0f} inferences a second at {clock}"
                  f"{'' if clock.basis == 'given' else f' ({board})'}", soft_wrap=True)
