"""The options of commands that take a float model, and quantise it."""

import argparse
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from gen.cli.common import messages
from gen.cli.errors import UsageError
from gen.cli.images import add_image_options, chosen_preprocessing, of_images
from gen.quantize.options import METHODS, QuantizeOptions
from sim.stochastic.streams import Streams

if TYPE_CHECKING:
    from gen.quantize.sessions import Progress
    from gen.run.calibration import Calibration
    from gen.run.preprocessing import Preprocessing

__all__ = ["Relay", "add_calibration_options", "changes_of", "chosen_calibration", "progress_of", "say"]

#: Option -> the field of QuantizeOptions that it sets.
_FIELDS = {"--method": "method", "--percentile": "percentile", "--per-tensor": "per_channel",
           "--symmetric": "symmetric", "--streams": "streams", "--bias-correction": "bias_correction",
           "--equalize": "equalize", "--keep-float": "keep_float", "--int4": "int4"}


def add_calibration_options(parser: argparse.ArgumentParser, *, required: bool = False) -> None:
    """--calibrate and how: each option that is not given is None."""
    group = parser.add_argument_group("float models", "are quantised on samples of what they will see; of models that "
                                      "are quantised in part (not by `quantize`) only what lacks it at either end of a "
                                      "layer, which would be the processor's, with --method and --symmetric")
    group.add_argument("--calibrate", type=Path, required=required, metavar="X.npz|FOLDER",
                       help="samples of the model's inputs, some hundred; a folder of images, or of a folder for each "
                            "class, is read as `run --input` reads an image")
    default = QuantizeOptions()
    group.add_argument("--method", choices=METHODS,
                       help="range of an activation: all values; --percentile of them; least divergence (Kullback and "
                            f"Leibler); least squared error (default {default.method})")
    group.add_argument("--percentile", type=percentile, metavar="P",
                       help="with --method percentile: share of values within the range "
                            f"(default {default.percentile})")
    group.add_argument("--per-tensor", dest="per_channel", action="store_const", const=False,
                       help="one scale for all weights of a layer, in place of one for each output channel")
    group.add_argument("--symmetric", action="store_const", const=True, help="activations with zero point 0")
    group.add_argument("--streams", type=stream_bits, metavar="BITS",
                       help="with --symmetric, for layers that `compile --stochastic BITS` has in streams (and-loop): "
                            "ranges of the least squared error by streams, and what they add to a channel in the mean "
                            "out of its bias")
    group.add_argument("--bias-correction", action="store_const", const=True,
                       help="take the mean error of each layer's output out of its bias")
    group.add_argument("--equalize", action="store_const", const=True,
                       help="make channels equally large across layers first; for depthwise networks")
    group.add_argument("--keep-float", action="append", metavar="NODE", help="leave this node float; several times")
    group.add_argument("--int4", action="append", metavar="NODE",
                       help="give this node's weights four bits, for machines with int4; several times; linear: all "
                            "Gemm and MatMul; all: also all Conv without groups")
    add_image_options(parser)


def percentile(text: str) -> float:
    value = float(text)
    try:
        return QuantizeOptions(percentile=value).percentile
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def stream_bits(text: str) -> int:
    try:
        return Streams(int(text)).length
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


class Relay:
    """Tells what it is told on to ``to``, which may be another one each time."""

    def __init__(self) -> None:
        self.to: Callable[[str], None] = lambda text: None

    def __call__(self, text: str) -> None:
        self.to(text)


def chosen_calibration(arguments: argparse.Namespace, remark: Callable[[str], None], *,
                       limit: int | None = None) -> "Calibration | None":
    """With the first ``limit`` samples; ``remark`` shows how far it is. Raises UsageError for options that do not go
    together.
    """
    given = {option: getattr(arguments, name) for option, name in _FIELDS.items()
             if getattr(arguments, name) is not None}
    if arguments.calibrate is None:
        if given:
            raise UsageError(f"{next(iter(given))} is for float models, and goes with --calibrate",
                             code="option-conflict")
        changes_of(arguments)
        return None
    if "--percentile" in given and arguments.method != "percentile":
        raise UsageError("--percentile goes with --method percentile", code="option-conflict")
    if "--streams" in given and not arguments.symmetric:
        raise UsageError("--streams goes with --symmetric: streams stand for numbers around 0", code="option-conflict")
    both = sorted({*(arguments.int4 or ())} & {*(arguments.keep_float or ())})
    if both:
        raise UsageError(f"--int4 {both[0]} and --keep-float {both[0]}: a node that stays float has no four bits",
                         code="option-conflict")
    fields = {_FIELDS[option]: value for option, value in given.items()}
    fields |= {name: frozenset(fields[name]) for name in ("keep_float", "int4") if name in fields}
    from gen.run.calibration import Calibration

    change_by = changes_of(arguments)[arguments.calibrate]
    return Calibration(arguments.calibrate, QuantizeOptions(**fields), limit, change_by, progress_of(remark))


def changes_of(arguments: argparse.Namespace) -> "dict[Path, Preprocessing | None]":
    """What is done to the images of each file of samples that a command has. Raises UsageError as `of_images`."""
    files = [getattr(arguments, name, None) for name in ("calibrate", "input", "test")]
    return of_images(chosen_preprocessing(arguments), *files)


def progress_of(remark: Callable[[str], None]) -> "Progress":
    """What a `gen.cli.common.status` shows while a model is quantised."""
    return lambda done, total, what: remark(f"{what}, {done:,} of {total:,}")


def say(remarks: Iterable[str]) -> None:
    for remark in remarks:
        messages.print(remark, soft_wrap=True)
