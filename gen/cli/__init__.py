"""The command line: one module for each command, with ``add_arguments(parser)``, ``run(arguments)`` and ``EXAMPLE``."""

import argparse
import importlib
import os
import sys
import warnings
from collections.abc import Sequence
from typing import Any, NoReturn

from gen.cli.errors import FAILED, INTERRUPTED, code_of, one_line, status_of
from gen.name import called, speaker

__all__ = ["COMMANDS", "main", "make_parser"]

#: Set by a shell that wants to know what may follow.
_COMPLETING = "_ARGCOMPLETE"

#: In the order of the help. A command's module is imported only when it is called: some need much.
COMMANDS = {
    "build": "write the Verilog, the driver's files and the vendor project of an NPU",
    "soc": "an NPU in a LiteX system: files, bitstream, simulation",
    "quantize": "quantise a float ONNX model",
    "compile": "compile an ONNX model into a program",
    "prune": "prune a model to a density of its blocks, or by whole channels",
    "train": "train or fine-tune a model in PyTorch, as a session file says",
    "run": "run a model or a program on the reference, a simulator, the Verilog or a board",
    "deploy": "pack a model with the driver and an example for a board",
    "profile": "cycles, utilisation and stalls of each layer",
    "report": "a page to look at: graph, timeline, roofline, memory, and where the cycles go",
    "explore": "search machines for models: cycles against area, and the best trade-offs",
    "battery": "inferences of a stochastic network from one battery, by levels of voltage and frequency",
    "govern": "levels for the driver's governor, and a discharge of a battery on a simulated device",
    "disasm": "list the instructions of a program",
    "explain": "say in words what a dump of a machine shows: state, instruction, waits, error",
    "compare": "compare every layer with onnxruntime",
    "zoo": "write a float ONNX model of a known network, with seeded weights",
    "boards": "list the known boards",
    "doctor": "check that everything the commands need is there",
    "bench": "measure layers, networks, area and speed, beside published figures",
    "demo": "build an NPU and let it recognise digits, in simulation",
}


class _HelpFormatter(argparse.HelpFormatter):
    """Wraps descriptions, but leaves the examples at the end as they are."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        if text.startswith("example:"):
            return "".join(indent + line for line in text.splitlines(keepends=True))
        return super()._fill_text(text, width, indent)


class _Parser(argparse.ArgumentParser):
    """Says what is wrong in one line."""

    def error(self, message: str) -> NoReturn:
        name = self.prog.removeprefix("python -m ")
        self.exit(2, f"{name}: error: {' '.join(message.split())} (help: {self.prog} --help)\n")


class _Version(argparse.Action):
    """Says what is installed, and of which instruction set; looked up only when it is asked for."""

    def __init__(self, option_strings: Sequence[str], dest: str, help: str) -> None:
        super().__init__(option_strings, dest, nargs=0, default=argparse.SUPPRESS, help=help)

    def __call__(self, parser: argparse.ArgumentParser, *arguments: object) -> NoReturn:
        from importlib import metadata

        from cores.arch.registers import VERSION

        try:
            installed = metadata.version("npugen")
        except metadata.PackageNotFoundError:
            installed = "of a checkout that is not installed"
        print(f"npugen {installed}, instruction set {VERSION}")
        parser.exit()


class _CommandParser(_Parser):
    """A command's own parser, which names the command when it does not know an option."""

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        namespace, unknown = super().parse_known_args(args, namespace)
        if unknown:
            self.error(f"unrecognized arguments: {' '.join(unknown)}")
        return namespace, unknown


def make_parser(command: str | None) -> argparse.ArgumentParser:
    """The parser with the options of ``command`` alone; of the others it knows only that they exist."""
    parser = _Parser(
        prog=called(), description="CNN accelerators for small FPGAs, from ONNX to Verilog.",
        epilog="example: %(prog)s run examples/digits/digits_int8.onnx --input examples/digits/digits_test.npz "
               "--limit 10 --target rtl")
    parser.add_argument("--version", action=_Version, help="show the program's version and the instruction set's")
    commands = parser.add_subparsers(metavar="COMMAND", required=True, dest="command",
                                     parser_class=_CommandParser)
    for name, text in COMMANDS.items():
        if name == command:
            module = importlib.import_module(f"gen.cli.{name}")
            sub = commands.add_parser(
                name, help=text, description=f"{text[0].upper()}{text[1:]}.", epilog=module.EXAMPLE, allow_abbrev=False,
                formatter_class=_HelpFormatter)
            module.add_arguments(sub)
            sub.set_defaults(run=module.run)
        else:
            commands.add_parser(name, help=text, add_help=False)
    return parser


def _complete(line: str) -> NoReturn:
    """Say what may follow ``line``, to the shell (`register-python-argcomplete`), and end."""
    import argcomplete

    command = next((word for word in line.split()[1:] if word in COMMANDS), None)
    argcomplete.autocomplete(make_parser(command), always_complete_options="long")
    sys.exit(FAILED)    # it has ended before


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command, the help if there is none; returns the exit status: 0, 1 (could not), 2 (bad arguments) or 130
    (interrupted)."""
    if _COMPLETING in os.environ:
        _complete(os.environ.get("COMP_LINE", ""))
    argv = list(sys.argv[1:] if argv is None else argv) or ["--help"]
    command = next((word for word in argv if not word.startswith("-")), None)
    try:
        try:
            arguments = make_parser(command).parse_args(argv)
        except SystemExit as stop:
            sys.stdout.flush()
            return int(stop.code or 0)
        from gen.cli.common import lines  # needs a package, which may be missing

        lines.begin()
        status = arguments.run(arguments) or 0
        sys.stdout.flush()
        return status
    except KeyboardInterrupt:
        warnings.simplefilter("ignore")     # of a design that stays half made
        print(f"{speaker(command)}: interrupted", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:
        _leave_stdout()     # whoever reads our output has enough of it (`| head`)
        return FAILED
    except Exception as error:
        if os.environ.get("NPUGEN_TRACEBACK"):
            raise
        if isinstance(error, OSError) and error.filename == "stdout":
            _leave_stdout()
        print(f"{speaker(command)}: error: {one_line(error)}{code_of(error)}", file=sys.stderr)
        return status_of(error)


def _leave_stdout() -> None:
    """What it does not take goes nowhere: Python does not complain once more while it ends."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
