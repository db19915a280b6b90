"""The parts of `gen bench` on stochastic units: their errors, area and accuracy by the length of streams."""

import argparse
import dataclasses
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from gen.cli.bench_part import Part, Rows, has_torch, models_folder
from gen.cli.common import messages, status
from gen.cli.examiner import examiner, lacks
from gen.cli.machine import chosen_board
from gen.cli.plots import write_plots
from gen.files.write import write_file
from sim.folders import cache_folder, checkout

if TYPE_CHECKING:
    from gen.bench.classifier import Classifier
    from gen.stochastic.accuracy import Examiner
    from gen.stochastic.backbone import Backbone

__all__ = ["PARTS"]

_PLOT, _SEARCH_PLOT = "stochastic", "stochastic_search"


def _errors(arguments: argparse.Namespace) -> Rows:
    """Rows for people, in thousandths, or with ``--json`` as they are."""
    from gen.bench.stochastic import measure_errors

    with status("dot products"):
        errors = measure_errors()
    if arguments.json:
        return [dataclasses.asdict(row) for row in errors]
    return [{"circuit": row.circuit, "inputs": row.inputs, "length": row.length, "error_‰": 1000 * row.rmse,
             "published": None if row.published is None else 1000 * row.published} for row in errors]


def _area(arguments: argparse.Namespace) -> Rows:
    """Units on the board's family. Raises what Yosys does."""
    from gen.bench.stochastic_area import measure_area

    with status("yosys") as remark:
        return [{"unit": row.unit, **row.resources, "levels": row.levels,
                 **{f"{length}_bits": 1000 * cycles for length, cycles in row.cycles.items()}}
                for row in measure_area(chosen_board(arguments).family, cache_folder() / "synth", remark)]


def _examiner(folder: Path, backbone: "Backbone") -> "Examiner | None":
    """None where something is missing, which is said."""
    lacking = lacks(folder, backbone)
    if lacking:
        messages.print(f"{backbone.word}: {lacking}", soft_wrap=True)
        return None
    return examiner(folder, backbone)


def _network(arguments: argparse.Namespace) -> Rows:
    """Right answers; those of networks without their images or PyTorch are left out, which is said."""
    from gen.bench.stochastic_digits import measure_digits
    from gen.bench.stochastic_network import ALEXNET, BACKBONES, LENET, AccuracyRow, measure_accuracy, plot
    from gen.stochastic.accuracy import Examiner
    from gen.stochastic.backbone import Backbone

    folder = models_folder(arguments)
    rows: list[AccuracyRow] = []
    for words, files in (((*BACKBONES, LENET), {"mlp": BACKBONES[0], "lenet": LENET}),
                         ((ALEXNET,), {"alexnet": ALEXNET})):
        backbones = [Backbone(word) for word in words]
        judge = folder and _examiner(folder, backbones[0])
        if not judge:
            continue
        with status("networks") as remark:
            for name, word in files.items() if arguments.output is not None else ():
                remark(f"{word}: training")
                _write_network(arguments.output, name, judge, Backbone(word), remark)
            rows += measure_accuracy(judge, backbones, remark)
    digits = _digits()
    if digits is not None:
        with status("digits") as remark:
            rows += measure_digits(digits, Examiner.default_folder(), remark=remark)
    if rows and arguments.output is not None:
        write_plots(arguments, arguments.output, _PLOT, plot(rows),
                    title=["answers of stochastic networks that are right",
                           "by their numbers alone: of no machine, board or clock"])
    return [{"backbone": row.backbone, "circuit": row.circuit, "length": row.length, "images": row.images,
             "right_%": 100 * row.right} for row in rows]


def _digits() -> "Classifier | None":
    """None without a checkout, which is said."""
    from gen.bench.classifier import digits_classifier

    root = checkout()
    if root is None:
        messages.print("no float network: examples/digits is in a checkout alone", soft_wrap=True)
        return None
    return digits_classifier(root)


def _write_network(folder: Path, name: str, judge: "Examiner", backbone: "Backbone",
                   remark: Callable[[str], None]) -> None:
    """A network as NAME.onnx, and as NAME_test.npz the images that it was not trained on."""
    import io

    import numpy as np

    from gen.stochastic.model import model_inputs, onnx_model
    from gen.stochastic.network import exact, integers, scores

    layers = judge.network(backbone, remark)
    pixels, labels = judge.images.for_backbone(backbone, judge.images.tested())
    x = integers(pixels)
    largest = float(np.abs(scores(layers, x, exact)).max())
    images = io.BytesIO()
    np.savez_compressed(images, allow_pickle=False, x=model_inputs(x), label=labels)
    write_file(folder / f"{name}.onnx", onnx_model(layers, largest / 127, name))
    write_file(folder / f"{name}_test.npz", images.getvalue())


def _energy(arguments: argparse.Namespace) -> Rows:
    """Units on the board's family. Raises what Yosys does."""
    from cores.arch.stochastic import Circuit
    from gen.bench.stochastic_area import LENGTHS
    from gen.energy.unit_energy import measure_energy

    rows = []
    with status("units") as remark:
        for circuit in (None, *Circuit):
            one = measure_energy(circuit, chosen_board(arguments).family, cache_folder(), remark)
            rows.append({
                "unit": one.unit, "lut": one.lut, "ff": one.ff, "dsp": one.dsp, "wires_%": 100 * one.wires,
                "registers_%": 100 * one.registers, "a_cycle": one.per_cycle,
                **{f"{length}_bits": one.per_product(length if circuit is not None else 1) for length in LENGTHS}})
    return rows


def _search(arguments: argparse.Namespace) -> Rows:
    """Rewards by evaluations; none without the images or PyTorch, which is said."""
    from gen.bench.stochastic_search import SPACE, measure_searches, rows_of
    from gen.cli.explore_streams import stream_problem, stream_title
    from gen.explore.convergence import plot_convergence
    from gen.explore.ledger import Ledger
    from gen.explore.task import read_task
    from gen.explore.workers import local_workers
    from gen.stochastic.backbone import Backbone

    task = read_task(SPACE)
    folder = models_folder(arguments)
    judge = folder and _examiner(folder, Backbone(task.backbones[0]))
    if not judge:
        return []
    problem = stream_problem(task, judge, chosen_board(arguments).family)
    ledger = Ledger(problem.meter.identity, Ledger.default_folder())
    with status("searches") as remark:
        curves = list(measure_searches(problem, local_workers(problem.meter, len(os.sched_getaffinity(0))), ledger,
                                        remark))
    if arguments.output is not None:
        runs = {name: [one.rewards for one in curves if one.method == name]
                for name in dict.fromkeys(one.method for one in curves if one.method != "grid")}
        write_plots(arguments, arguments.output, _SEARCH_PLOT, plot_convergence(runs, "reward", stream_title(
            SPACE.stem, task, chosen_board(arguments).title)))
    rows = rows_of(curves)
    marks = rows[-1].best
    return [{"method": row.method, "evaluations": row.evaluations,
             **{f"after_{mark}": row.best.get(mark) for mark in marks}, "least": row.least, "best_found": row.found}
            for row in rows]


def _axes(arguments: argparse.Namespace) -> Rows:
    """Rewards by evaluations, accuracies assumed; none without a checkout, or PyTorch and Optuna, which is said."""
    from gen.bench.stochastic_axes import SPACES, measure_axes
    from gen.explore.errors import ExploreError
    from gen.explore.task import read_task

    root = checkout()
    if root is None:
        messages.print("no spaces: examples/stochastic is in a checkout alone", soft_wrap=True)
        return []
    tasks = {name: read_task(root / "examples" / "stochastic" / f"{name}.json") for name in SPACES}
    try:
        with status("searches") as remark:
            rows = list(measure_axes(tasks, chosen_board(arguments).family, remark))
    except ExploreError as error:
        messages.print(str(error), soft_wrap=True)
        return []
    return [{"search": f"{row.space}: {row.method}", "evaluations": row.evaluations,
             **{f"after_{mark}": reward for mark, reward in row.best.items()}, "least": row.least,
             "feasible_%": 100 * row.feasible, "best": row.found} for row in rows]


def _ranges(arguments: argparse.Namespace) -> Rows:
    """The digits of the example; none without a checkout, and none that are trained without PyTorch, which is said."""
    from gen.bench.stochastic_ranges import measure_ranges, measure_trained

    digits = _digits()
    if digits is None:
        return []
    with status("digits") as remark:
        rows = [*measure_ranges(digits, remark), *(measure_trained(digits, remark) if has_torch() else ())]
    return [{"way": row.way, "images": len(digits.labels), "int8_%": 100 * row.exact,
             **{f"{length}_bits_%": 100 * right for length, right in row.right.items()}} for row in rows]


PARTS = (
    Part("stochastic", "root mean square errors of stochastic dot products, in thousandths", _errors),
    Part("stochastic-area", "stochastic units as mapped by Yosys; cycles of 1,000 products in a whole unit, by length "
         "of the streams", _area),
    Part("stochastic-network", "right answers of networks of stochastic dot products, by length of streams: digits by "
         "MLPs and LeNet-5, trained on the first 8,000 images of MNIST's test set, tested on the last 2,000 or some of "
         "them; photographs by an AlexNet, trained on 15,000 of CIFAR-10, tested on 1,000 others; "
         "examples/digits", _network, _PLOT),
    Part("stochastic-ranges", "digits by a network with five stochastic layers, quantised in several ways: right "
         "answers by length of the streams", _ranges),
    Part("stochastic-energy", "relative energy of stochastic units at 1 V: of a cycle, and of a product by length of "
         "streams", _energy),
    Part("stochastic-search", "best reward after so many evaluations, five seeds each: the published controller, "
         "Optuna, chance", _search, _SEARCH_PLOT),
    Part("stochastic-axes", "best reward after so many evaluations of spaces whose axes are layers, neurons, kernels, "
         "strides and channels, five seeds each; accuracies are assumed by a formula, no network is trained", _axes),
)
