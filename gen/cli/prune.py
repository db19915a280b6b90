"""``gen prune``"""

import argparse
import math
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich import box
from rich.table import Table

from gen.cli.common import add_json_option, console, messages, print_json, refuse_to_replace, status
from gen.cli.compile import add_shape_option, density
from gen.cli.detection import add_detection_options, chosen_judge, precision_dict
from gen.cli.errors import UsageError
from gen.cli.images import add_image_options, chosen_preprocessing, of_images
from gen.cli.machine import (
    add_machine_options,
    chosen_config,
    described,
    named_board,
    require_inputs,
    say_density,
)
from gen.cli.run import positive
from gen.files.write import require_writable, write_file

if TYPE_CHECKING:
    from gen.prune.plan import Goal, Kind, Pruned

#: How far the share of channels that goes may be from what was asked for without a word.
_NEAR = 0.02

EXAMPLE = """example:
  %(prog)s examples/digits/digits_float.onnx --density 0.25 -o build/digits_sparse.onnx
  %(prog)s examples/digits/digits_float.onnx --max-loss 1 --calibrate examples/digits/digits_test.npz \\
      -o build/digits_sparse.onnx"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = ("Prune a model, float or quantised: to a density of each block, or by whole channels. "
                          "Cycles are those of the time model, on the machine of the options.")
    parser.add_argument("model", type=Path, metavar="MODEL.onnx")
    parser.add_argument("-o", "--output", type=Path, required=True, metavar="P.onnx")
    how_far = parser.add_mutually_exclusive_group(required=True)
    how_far.add_argument("--density", type=density, metavar="D",
                         help="keep this share of the weights in every block, such as 0.25")
    how_far.add_argument("--ratio", type=ratio, metavar="R", help="with --channels: the share of them that goes")
    how_far.add_argument("--budget-cycles", type=positive, metavar="C",
                         help="prune until an inference takes so many cycles, where it costs least")
    how_far.add_argument("--max-loss", type=points, metavar="POINTS",
                         help="prune as far as the accuracy on the samples of --calibrate, or with --annotations mAP "
                              "at an overlap of 0.5, falls by so many points")
    how_far.add_argument("--threshold", type=threshold, metavar="T",
                         help="with --channels: channels whose score is below this go, in whole blocks; with "
                              "--unstructured: weights of a smaller magnitude")
    parser.add_argument("--layers", action="append", default=[], metavar="PATTERN",
                        help="prune the layers with such names alone, as 'block1*'; may be given again. A residual "
                             "chain is pruned if all of its layers are chosen")
    parser.add_argument("--calibrate", type=Path, metavar="X.npz",
                        help="samples to measure by, with an array `label` for accuracy; without labels a sample is "
                             "right where the model answers as before (default: random samples)")
    parser.add_argument("--limit", type=positive, metavar="N", help="take the first N samples")
    parser.add_argument("--channels", choices=("gamma", "apoz"),
                        help="take out whole channels, and whole blocks of them: those of the smallest "
                             "batch-norm gammas, or with the most zeros after their ReLU")
    parser.add_argument("--iterations", type=positive, default=1, metavar="N",
                        help="with --ratio: in so many steps, each measured anew (default 1)")
    parser.add_argument("--floor", type=ratio, default=0.0, metavar="F",
                        help="with --channels: the share of each layer's, or residual chain's, channels that stays "
                             "at least (default 0: one block)")
    parser.add_argument("--unstructured", action="store_true",
                        help="with --density: the smallest weights of a layer wherever they are, the first of two "
                             "stages; the machine gains by the second one, without this option, after fine-tuning")
    add_detection_options(parser, "--calibrate")
    add_image_options(parser)
    add_shape_option(parser)
    add_machine_options(parser)
    add_json_option(parser)


def ratio(text: str) -> float:
    value = float(text)
    if not 0 < value < 1:
        raise argparse.ArgumentTypeError(f"must be above 0 and below 1, not {text}")
    return value


def threshold(text: str) -> float:
    value = float(text)
    if not 0 < value < math.inf:
        raise argparse.ArgumentTypeError(f"must be above 0, not {text}")
    return value


def points(text: str) -> float:
    value = float(text)
    if not 0 <= value <= 100:
        raise argparse.ArgumentTypeError(f"must be in 0..100, not {text}")
    return value


def goal_of(arguments: argparse.Namespace) -> "Goal":
    """Raises UsageError for options that do not go together."""
    from gen.prune.plan import Goal

    if arguments.channels and arguments.density is not None:
        raise UsageError("--density counts blocks; with --channels give --ratio, --threshold, --budget-cycles or "
                         "--max-loss", code="option-conflict")
    if arguments.ratio is not None and not arguments.channels:
        raise UsageError("--ratio goes with --channels; for blocks give --density", code="option-conflict")
    if arguments.unstructured and arguments.density is None and arguments.threshold is None:
        raise UsageError("--unstructured goes with --density or --threshold", code="option-conflict")
    if arguments.unstructured and arguments.channels:
        raise UsageError("--unstructured removes single weights, --channels whole channels; give one of them",
                         code="option-conflict")
    if arguments.threshold is not None and not (arguments.channels or arguments.unstructured):
        raise UsageError("--threshold goes with --channels or --unstructured; for blocks give --density",
                         code="option-conflict")
    if arguments.max_loss is not None and arguments.calibrate is None:
        raise UsageError("--max-loss needs samples to measure by: --calibrate X.npz", code="option-conflict")
    if arguments.annotations is not None and arguments.calibrate is None:
        raise UsageError("--annotations goes with pictures to measure by: --calibrate", code="option-conflict")
    if arguments.iterations > 1 and arguments.ratio is None:
        raise UsageError("--iterations goes with --ratio", code="option-conflict")
    if arguments.floor and not arguments.channels:
        raise UsageError("--floor goes with --channels", code="option-conflict")
    kind: Kind = arguments.channels or ("magnitude" if arguments.unstructured else "block")
    share = arguments.ratio if arguments.density is None else arguments.density
    return Goal(kind=kind, share=share, cycles=arguments.budget_cycles, loss=arguments.max_loss,
                rounds=arguments.iterations, floor=arguments.floor, threshold=arguments.threshold,
                layers=tuple(arguments.layers))


def run(arguments: argparse.Namespace) -> None:
    refuse_to_replace(arguments.output, arguments.model, arguments.calibrate, arguments.config)
    goal, config = goal_of(arguments), chosen_config(arguments)
    changes = of_images(chosen_preprocessing(arguments), arguments.calibrate)
    require_writable(arguments.output)
    judge = chosen_judge(arguments)
    from gen.onnx.written import content_of
    from gen.prune.plan import Pruner, layer_rows, read_model

    used = None if arguments.unstructured else say_density(arguments.density, config)
    with status(f"pruning {arguments.model.name}") as remark:
        model = read_model(arguments.model, dict(arguments.shape))
        require_inputs(arguments, [value.name for value in model.graph.input])
        pruner = Pruner(model, config, name=str(arguments.model), progress=remark)
        if arguments.calibrate:
            pruner.take_samples(arguments.calibrate, arguments.limit, changes[arguments.calibrate], judge)
        pruned = pruner.prune(goal)
        rows = layer_rows(model, pruned)
    write_file(arguments.output, content_of(pruned.model))
    if pruned.reason:
        messages.print(f"{arguments.model}: warning: cycles are not known: {pruned.reason}", soft_wrap=True)
    if pruned.on_host:
        nodes = f"{pruned.on_host} node{' runs' if pruned.on_host == 1 else 's run'}"
        messages.print(f"{arguments.model}: cycles are the accelerator's; {nodes} on the processor (`compile` says "
                       "which)", soft_wrap=True)
    if pruned.remark:
        messages.print(pruned.remark, soft_wrap=True)
    if pruned.gone is not None and goal.share is not None and abs(pruned.gone - goal.share) > _NEAR:
        floor = ", and what --floor says" if goal.floor else ""
        messages.print(f"{arguments.model}: warning: {pruned.gone:.1%} of the channels are gone, where "
                       f"{goal.share:.1%} were to go: a layer, or residual chain, keeps a block of {config.ic_lanes}"
                       f"{floor}", soft_wrap=True)
    total = _totals(pruned)
    if arguments.json:
        print_json({"model": str(arguments.output), "kind": goal.kind,
                    "density": None if used is None else {"asked": arguments.density, "used": used},
                    **total, "layers": rows})
        return
    console.print(described(config, named_board(arguments)), soft_wrap=True)
    show(rows, total)
    messages.print(f"{arguments.output}: {goal.kind} pruning", soft_wrap=True)


def _totals(pruned: "Pruned") -> dict[str, Any]:
    before, after = pruned.before, pruned.after
    return {
        "on_host": pruned.on_host,
        "channels_gone": pruned.gone,
        "counts": None if pruned.counts is None else dict(zip(("before", "after"), map(asdict, pruned.counts),
                                                              strict=True)),
        "cycles": {"before": before.total, "after": after.total} if before and after else None,
        "sqnr_db": None if pruned.noise <= 0 else -10 * math.log10(pruned.noise),
        "labelled": pruned.labelled,
        "precision": None if pruned.precision is None else dict(zip(
            ("before", "after"), map(precision_dict, pruned.precision), strict=True)),
        "accuracy": None if pruned.accuracy is None else dict(zip(("before", "after"), pruned.accuracy, strict=True)),
    }


def show(rows: list[dict[str, Any]], total: dict[str, Any]) -> None:
    """The report as a table."""
    from gen.detection.precision import Precision

    levels = sorted({level for row in rows for level in row["sensitivity"] or ()}, key=float, reverse=True)
    table = Table(box=box.SIMPLE, padding=(0, 1, 0, 0))
    table.add_column("layer", overflow="fold")
    for heading in ("channels", "% kept", *(f"dB at\n{float(level):.0%}" for level in levels), "cycles", "before"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("", overflow="fold")
    for row in rows:
        noises = [(row["sensitivity"] or {}).get(level) for level in levels]
        cycles = row["cycles"]
        table.add_row(
            row["name"], f"{row['channels']['after']:,}", f"{100 * row['density']['after']:.1f}",
            *("" if noise is None else "same" if noise <= 0 else f"{-10 * math.log10(noise):.1f}" for noise in noises),
            *((f"{cycles['after']:,}", f"{cycles['before']:,}") if cycles else ("", "")), row["left"])
    console.print(table)
    if total["cycles"]:
        after, before = total["cycles"]["after"], total["cycles"]["before"]
        console.print(f"{after:,} cycles an inference, {before:,} before ({before / after:.2f} times)", soft_wrap=True)
    if total["counts"]:
        old, new = total["counts"]["before"], total["counts"]["after"]
        console.print(f"{new['nonzero']:,} parameters that are not 0, of {new['parameters']:,}; {old['nonzero']:,} of "
                      f"{old['parameters']:,} before", soft_wrap=True)
        console.print(f"{new['useful_macs']:,} MACs an inference by such weights, {old['useful_macs']:,} before",
                      soft_wrap=True)
    if total["sqnr_db"] is not None:
        console.print(f"the outputs' signal is {total['sqnr_db']:.1f} dB above what pruning changed", soft_wrap=True)
    if total["precision"]:
        for when, found in total["precision"].items():
            console.print(f"{when}: {Precision(**found)}", soft_wrap=True)
    elif total["accuracy"] and not total["labelled"]:
        console.print(f"{total['accuracy']['after']:.2%} of the answers are the same as before", soft_wrap=True)
    elif total["accuracy"]:
        console.print(f"accuracy {total['accuracy']['after']:.2%}, {total['accuracy']['before']:.2%} before",
                      soft_wrap=True)
