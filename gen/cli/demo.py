"""``gen demo``"""

import argparse
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from rich.columns import Columns
from rich.text import Text

from gen.cli.common import OUTPUT, add_json_option, console, print_json
from gen.cli.errors import FAILED
from gen.cli.machine import add_machine_options, chosen_board, chosen_config
from gen.cli.run import positive
from gen.hw.clock import clock_of

if TYPE_CHECKING:
    from boards.board import Board
    from cores.config import NpuConfig
    from gen.program.program import Program
    from gen.run.application import Application
    from gen.run.inputs import Samples
    from gen.run.runner import Run

EXAMPLE = "example: %(prog)s --limit 20"

#: Links in examples/digits lead here.
_DIGITS = Path(__file__).resolve().parents[1] / "digits"

#: A character is one pixel wide and two high: neither is ink, the lower one, the upper one, both.
_PIXELS = " ▄▀█"
_INK = 0.4
#: The smallest machine that is worth a look takes least time to compile.
_MACS = 64


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--limit", type=positive, default=12, metavar="N", help="digits to read (default 12)")
    add_machine_options(parser, macs=_MACS)
    add_json_option(parser)


def picture(image: np.ndarray, caption: Text) -> Text:
    """An image (H, W), 0..1, with a line of text below."""
    ink = image > _INK
    pairs = 2 * ink[::2] + ink[1::2]
    return Text("\n").join([*(Text("".join(_PIXELS[pair] for pair in row)) for row in pairs), caption])


def run(arguments: argparse.Namespace) -> int:
    model, data = _DIGITS / "digits_int8.onnx", _DIGITS / "digits_test.npz"
    board, config = chosen_board(arguments), chosen_config(arguments)
    console.quiet = arguments.json
    result = _Demo(arguments.limit, board, config).run(model, data)
    console.quiet = False
    if arguments.json:
        print_json(result)
    return FAILED if result["mismatches"] else 0


def say(text: str, style: str = "") -> None:
    console.print(f"   {text}", style=style, soft_wrap=True)


class _Demo:
    """The steps of the demo, each under its heading."""

    def __init__(self, limit: int, board: "Board", config: "NpuConfig") -> None:
        self.limit, self.board, self.config = limit, board, config
        self.folder = OUTPUT / "demo"
        self.clock = clock_of(board, config)
        self.began = time.perf_counter()
        self.steps = 0

    def run(self, model: Path, data: Path) -> dict[str, Any]:
        """Returns the JSON form."""
        from gen.cli import profile
        from gen.cli.run import summary
        from gen.options import CompileOptions
        from gen.run.application import open_application
        from gen.run.inputs import read_samples
        from gen.run.report import Measured, profile_of

        self.build()
        application = open_application(model, self.config, CompileOptions(keep_all=True), board=self.board.name)
        workload, = application.workloads
        self.compile(model, workload.program)
        samples = read_samples(data, application.inputs, limit=self.limit)
        result = self.read_digits(application, samples)
        self.step("Where the cycles of an image go")
        rtl, = result.inferences[0].rtl
        measured = profile_of([Measured(workload.program, rtl.trace, rtl.cycles)], self.clock)
        profile.show(measured, self.board.name)
        self.sum_up(result)
        return {**summary(result), "board": self.board.name, "macs": self.config.macs, "profile": measured}

    def step(self, text: str) -> None:
        self.steps += 1
        console.print(f"\n{self.steps}. {text}", style="bold", soft_wrap=True)

    def build(self) -> None:
        from gen.cli.build import write_files

        self.step(f"Verilog of an NPU with {self.config.macs} multiply-accumulates a cycle, for {self.board.title}")
        verilog, _ = write_files(self.folder, self.board, self.config)
        say(f"{len(verilog) / 1e6:.1f} MB in {self.folder / 'npu.v'}, {time.perf_counter() - self.began:.1f} s")

    def compile(self, model: Path, program: "Program") -> None:
        from gen.program.file import save_program

        self.step("A network for handwritten digits, int8, compiled for it")
        save_program(program, self.folder / "digits.npu")
        macs = sum(layer.macs for layer in program.layers)
        say(f"{len(program.layers)} layers, {macs / 1e6:.2f} million multiply-accumulates an image, "
            f"{len(program.instructions)} instructions")
        say(f"the model, with images to try: {model.parent}; the program: {self.folder / 'digits.npu'}")

    def read_digits(self, application: "Application", samples: "Samples") -> "Run":
        from gen.cli.run import execute

        self.step(f"{len(samples)} digits that it has never seen, on the Verilog in Verilator")
        say("compiling the simulation first, once: half a minute or so on two cores")
        result = execute(application, samples, "rtl")
        assert result.labels is not None
        pictures = []
        for image, label, inference in zip(samples.inputs["image"], result.labels, result.inferences, strict=True):
            right = inference.prediction == label
            caption = f"read as {inference.prediction}" + ("" if right else f", is {label}")
            pictures.append(picture(image[0], Text(caption, style="green" if right else "bold red")))
        console.print(Columns(pictures, padding=(1, 2)))
        return result

    def sum_up(self, result: "Run") -> None:
        self.step("In all")
        assert result.accuracy is not None and result.cycles is not None
        number = len(result.inferences)
        say(f"{round(result.accuracy * number)} of {number} digits right")
        say(f"{result.cycles:,.0f} cycles an image: {self.clock.per_second(result.cycles):,.0f} images a second at "
            f"{self.clock}")
        say(f"simulated at {result.cycles * number / result.seconds:,.0f} cycles a second; "
            f"the demo took {time.perf_counter() - self.began:.0f} s")
        say(f"{result.mismatches:,} of {result.compared * number:,} bytes, in all intermediate tensors, "
            "differ from the golden model", style="red" if result.mismatches else "green")
