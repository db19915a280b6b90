"""``gen train``"""

import argparse
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from rich import box
from rich.table import Table

from gen.cli.common import add_json_option, console, messages, print_json, refuse_to_replace, status
from gen.cli.compile import add_shape_option
from gen.cli.errors import CommandError
from gen.cli.machine import require_inputs
from gen.cli.plots import add_plots_option
from gen.files.write import require_writable, write_file

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gen.train.fit import Trained
    from gen.train.variants import Variant

EXAMPLE = "example: %(prog)s examples/pruning/mnist.json -o build/mnist.onnx"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = ("Train a model, float or quantised (QDQ), as a session file says (docs/pruning.md). Needs "
                          "PyTorch: pip install 'npugen[train]'.")
    parser.add_argument("session", type=Path, metavar="SESSION.json|yaml")
    parser.add_argument("-o", "--output", type=Path, required=True, metavar="MODEL.onnx", help="the trained model")
    parser.add_argument("--model", type=Path, metavar="MODEL.onnx", help="instead of the session's")
    parser.add_argument("--train", type=Path, metavar="DATA", help="samples to learn, instead of the session's")
    parser.add_argument("--test", type=Path, metavar="DATA", help="samples to test on, instead of the session's")
    parser.add_argument("--variants", type=Path, metavar="FOLDER",
                        help="keep the model of each round there, a table and a plot of their accuracy, cycles and "
                             "parameters, and what an interrupted session needs to go on, which the same command does")
    add_plots_option(parser)
    add_shape_option(parser)
    add_json_option(parser)


def run(arguments: argparse.Namespace) -> None:
    refuse_to_replace(arguments.output, arguments.session, arguments.model, arguments.train, arguments.test)
    require_writable(arguments.output)
    from importlib.util import find_spec

    import msgspec

    from gen.onnx.written import content_of
    from gen.prune.plan import read_model
    from gen.train.session import Data, read_session

    session, folder = read_session(arguments.session), arguments.session.parent
    if find_spec("torch") is None:
        raise CommandError("training needs PyTorch: pip install 'npugen[train]'", code="missing-package")
    from gen.train.fit import train

    if arguments.train:
        session = msgspec.structs.replace(
            session, train=msgspec.structs.replace(session.train, path=str(arguments.train.absolute())))
    if arguments.test:
        test = session.test or Data(path="")
        session = msgspec.structs.replace(
            session, test=msgspec.structs.replace(test, path=str(arguments.test.absolute())))
    model = arguments.model or folder / session.model
    refuse_to_replace(arguments.output, model)
    with status(f"training {model.name}") as remark:
        start = read_model(model, dict(arguments.shape))
        require_inputs(arguments, [value.name for value in start.graph.input])
        trained = train(session, start, folder, name=str(model), keep=arguments.variants, plots=arguments.plots,
                        progress=remark)
    write_file(arguments.output, content_of(trained.model))
    if arguments.json:
        print_json({"model": str(arguments.output), "before": trained.before,
                    "epochs": [asdict(epoch) for epoch in trained.epochs],
                    "variants": [asdict(variant) for variant in trained.variants], "variant": trained.name,
                    "ended": trained.ended, "measure": trained.measure})
        return
    show(trained)
    if trained.ended:
        messages.print(f"{arguments.session}: {trained.ended}", soft_wrap=True)
    messages.print(f"{arguments.output}: trained", soft_wrap=True)


def show(trained: "Trained") -> None:
    """The course of the training as a table."""
    table = Table(box=box.SIMPLE, padding=(0, 1, 0, 0))
    for heading in ("stage", "round", "epoch", "loss", f"% {trained.measure}"):
        table.add_column(heading, justify="right")
    if trained.before is not None:
        table.add_row("", "", "before", "", f"{100 * trained.before:.2f}")
    for epoch in trained.epochs:
        right = "" if epoch.accuracy is None else f"{100 * epoch.accuracy:.2f}"
        table.add_row(str(epoch.stage), str(epoch.round), str(epoch.number), f"{epoch.loss:.4f}", right)
    console.print(table)
    if trained.variants:
        console.print(variants_table(trained.variants, trained.measure))


def variants_table(variants: "Sequence[Variant]", measure: str) -> Table:
    """A row for each variant; ``measure``: what accuracy is."""
    table = Table(box=box.SIMPLE, padding=(0, 1, 0, 0))
    table.add_column("variant", overflow="fold")
    for heading in (f"% {measure}", "cycles", "parameters", "not 0", "MACs", "by weights\nnot 0"):
        table.add_column(heading, justify="right")
    for one in variants:
        right = "" if one.accuracy is None else f"{100 * one.accuracy:.2f}"
        cycles = "" if one.cycles is None else f"{one.cycles:,}"
        table.add_row(one.name, right, cycles, *(f"{count:,}" for count in (
            one.parameters, one.nonzero, one.macs, one.useful_macs)))
    return table
