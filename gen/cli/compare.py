"""``gen compare``"""

import argparse
from pathlib import Path

from gen.cli.common import add_json_option, console, messages, print_json, status
from gen.cli.compile import add_shape_option
from gen.cli.errors import FAILED
from gen.cli.run import positive
from gen.name import speaker

EXAMPLE = """example:
  %(prog)s examples/digits/digits_int8.onnx --input examples/digits/digits_test.npz --limit 20"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = ("Compare every layer with onnxruntime. Each gets the inputs that the reference gave it, "
                          "and may differ by one unit of its int8 result.")
    parser.add_argument("model", type=Path, metavar="MODEL.onnx")
    parser.add_argument("--input", type=Path, required=True, metavar="FILE", help="samples, as for `run`")
    add_shape_option(parser)
    parser.add_argument("--limit", type=positive, metavar="N", help="take the first N samples")
    add_json_option(parser)


def run(arguments: argparse.Namespace) -> int:
    from gen.check.compare import compare_model, print_comparison
    from gen.onnx.importer import load_model
    from gen.onnx.machine import Machine
    from gen.run.inputs import input_specs, read_samples

    imported = load_model(arguments.model, shapes=dict(arguments.shape), machine=Machine.complete())
    shapes = {model_input.name: model_input.shape for model_input in imported.model.inputs}
    samples = read_samples(arguments.input, input_specs(imported.graph, shapes), limit=arguments.limit)
    if samples.remark:
        messages.print(samples.remark, soft_wrap=True)
    with status(f"{len(samples)} samples on onnxruntime"):
        comparison = compare_model(imported, samples.inputs)
    if arguments.json:
        print_json(comparison.to_dict())
    else:
        print_comparison(comparison, console)
    if comparison.largest > 1:
        worst = max(comparison.layers, key=lambda row: row.largest)
        messages.print(f"{speaker('compare')}: error: layer {worst.layer} differs by up to {worst.largest}",
                       soft_wrap=True)
        return FAILED
    return 0
