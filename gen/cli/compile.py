"""``gen compile``"""

import argparse
from pathlib import Path

from gen.cli.common import add_json_option, add_machine_options, chosen_config, messages, print_json, status
from gen.cli.errors import UsageError
from gen.files import require_writable

EXAMPLE = "example: python -m gen compile examples/digits/digits_int8.onnx --macs 256 -o build/digits.npu"


def add_compiler_options(parser: argparse.ArgumentParser) -> None:
    """--density, --depthwise, --fusion, --gather."""
    parser.add_argument("--density", type=density, metavar="D",
                        help="prune to this share of non-zero weights in every block, such as 0.25")
    parser.add_argument("--depthwise", choices=("auto", "plain"), default="auto",
                        help="with --features depthwise: plain computes depthwise layers as without (default auto)")
    parser.add_argument("--fusion", choices=("auto", "off"), default="auto",
                        help="with --features depthwise,fusion: off writes every layer's result to memory "
                             "(default auto: what a faster pointwise layer takes from the input buffer is not)")
    parser.add_argument("--gather", choices=("auto", "plain"), default="auto",
                        help="with --features gather: plain computes layers of few input channels as without (default "
                             "auto)")


def density(text: str) -> float:
    value = float(text)
    if not 0 < value <= 1:
        raise argparse.ArgumentTypeError(f"must be above 0 and at most 1, not {text}")
    return value


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", type=Path, metavar="MODEL.onnx", help="quantised ONNX model")
    parser.add_argument("-o", "--output", type=Path, required=True, metavar="PROGRAM",
                        help="the program, usually *.npu")
    parser.add_argument("--calibrate", type=Path, metavar="X.npz", help="samples to quantise a float model on")
    add_compiler_options(parser)
    add_machine_options(parser)
    add_json_option(parser)


def run(arguments: argparse.Namespace) -> None:
    config = chosen_config(arguments)
    if arguments.calibrate:
        raise UsageError("--calibrate: float models cannot be quantised here yet; give a quantised model")
    if arguments.output.resolve() == arguments.model.resolve():
        raise UsageError(f"-o {arguments.output} would replace the model")
    require_writable(arguments.output)
    from gen.workload import open_workload

    with status(f"compiling {arguments.model.name}"):
        program = open_workload(arguments.model, config, density=arguments.density,
                                depthwise_mode=arguments.depthwise, fusion_mode=arguments.fusion,
                                gather_mode=arguments.gather).program
    program.save(arguments.output)
    facts = {
        "program": str(arguments.output), "layers": len(program.layers),
        "instructions": len(program.instruction_layers), "code_bytes": len(program.code),
        "constant_bytes": len(program.constants), "data_bytes": program.data_beats * config.beat_bytes,
        "macs": sum(layer.macs for layer in program.layers),
        "useful_macs": sum(layer.useful_macs for layer in program.layers),
    }
    if arguments.json:
        print_json(facts)
        return
    messages.print(f"{arguments.output}: {facts['layers']} layers, {facts['instructions']:,} instructions, "
                   f"{facts['constant_bytes']:,} bytes of weights and parameters, {facts['macs']:,} MACs",
                   soft_wrap=True)
