"""The parts of `gen bench` on stochastic units: their errors, area and accuracy by the length of streams."""

import argparse
import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING

from gen.cli.bench_part import Part, Rows, models_folder
from gen.cli.common import messages, status
from gen.cli.errors import UsageError
from gen.cli.machine import chosen_board
from gen.files.write import write_file
from sim.folders import cache_folder

if TYPE_CHECKING:
    from gen.bench.stochastic_network import Trained

__all__ = ["PARTS"]

_PLOT = "stochastic.png"
#: The network and what it was not trained on, for `compile` and `run`.
_MODEL, _IMAGES = "mlp.onnx", "mlp_test.npz"


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


def _network(arguments: argparse.Namespace) -> Rows:
    """Right answers; none without the images or PyTorch, which is said. Raises UsageError for damaged images."""
    from importlib.util import find_spec

    from gen.bench.stochastic_network import MNIST_FILES, accuracies, plot, trained

    folder = models_folder(arguments)
    if folder is None:
        return []
    if not all((folder / name).is_file() for name in MNIST_FILES):
        messages.print(f"no images: {' and '.join(MNIST_FILES)} are not in the folder of the networks", soft_wrap=True)
        return []
    if find_spec("torch") is None:
        messages.print("training needs PyTorch: pip install '.[train]'", soft_wrap=True)
        return []
    with status("MLP") as remark:
        try:
            remark("training")
            network = trained(folder)
        except (EOFError, OSError, ValueError) as error:
            raise UsageError(f"{folder}: {error}") from None
        if arguments.output is not None:
            _write_network(arguments.output, network)
        rows = list(accuracies(network, remark))
    if arguments.output is not None:
        write_file(arguments.output / _PLOT, plot(rows))
    return [{"circuit": row.circuit, "length": row.length, "images": row.images, "right_%": 100 * row.right}
            for row in rows]


def _write_network(folder: Path, network: "Trained") -> None:
    import io

    import numpy as np

    from gen.bench.stochastic_model import onnx_model

    images = io.BytesIO()
    np.savez_compressed(images, x=network.images.astype(np.float32) / 127, label=network.labels)
    write_file(folder / _MODEL, onnx_model(network.layers, network.score_scale))
    write_file(folder / _IMAGES, images.getvalue())


PARTS = (
    Part("stochastic", "root mean square errors of stochastic dot products, in thousandths", _errors),
    Part("stochastic-area", "stochastic units as mapped by Yosys; cycles of 1,000 products in a whole unit, by length "
         "of the streams", _area),
    Part("stochastic-network", "digits by an MLP 784-200-32-10 of stochastic dot products, by length of streams; "
         "trained on the first 8,000 images of MNIST's test set, tested on the last 2,000 or some of them", _network,
         _PLOT),
)
