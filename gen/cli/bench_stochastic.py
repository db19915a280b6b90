"""The ``stochastic`` parts of `gen bench`: errors, area and accuracy of stochastic units by the length of streams."""

import argparse
import dataclasses
from pathlib import Path
from typing import Any

from gen.cli.common import messages, status
from gen.cli.errors import UsageError
from gen.cli.machine import chosen_board
from gen.files.write import write_file
from sim.folders import cache_folder

__all__ = ["PLOT", "TITLES", "measure_area", "measure_errors", "measure_network"]

#: File of the network's plot.
PLOT = "stochastic.png"
#: What the tables are called, by part.
TITLES = {
    "stochastic": "root mean square errors of stochastic dot products, in thousandths",
    "stochastic-area": "stochastic units as mapped by Yosys; cycles of 1,000 products in a whole unit, by length "
                       "of the streams",
    "stochastic-network": "digits by an MLP 784-200-32-10 of stochastic dot products, by length of streams; trained "
                          "on the first 8,000 images of MNIST's test set, tested on the last 2,000 or some of them",
}


def measure_errors(arguments: argparse.Namespace) -> list[dict[str, Any]]:
    """Rows for people, in thousandths, or with ``--json`` as they are."""
    from gen.bench.stochastic import measure_errors

    with status("dot products"):
        errors = measure_errors()
    if arguments.json:
        return [dataclasses.asdict(row) for row in errors]
    return [{"circuit": row.circuit, "inputs": row.inputs, "length": row.length, "error_‰": 1000 * row.rmse,
             "published": None if row.published is None else 1000 * row.published} for row in errors]


def measure_area(arguments: argparse.Namespace) -> list[dict[str, Any]]:
    """Units on the board's family. Raises what Yosys does."""
    from gen.bench.stochastic_area import measure_area

    with status("yosys") as remark:
        return [{"unit": row.unit, **row.resources, "levels": row.levels,
                 **{f"{length}_bits": 1000 * cycles for length, cycles in row.cycles.items()}}
                for row in measure_area(chosen_board(arguments).family, cache_folder() / "synth", remark)]


def measure_network(arguments: argparse.Namespace, folder: Path | None) -> list[dict[str, Any]]:
    """Right answers; none without the images or PyTorch, which is said. Raises UsageError for damaged images."""
    from importlib.util import find_spec

    from gen.bench.stochastic_network import MNIST_FILES, measure_accuracy, plot

    if folder is None or not all((folder / name).is_file() for name in MNIST_FILES):
        messages.print(f"no images: {' and '.join(MNIST_FILES)} are not in the folder of the networks", soft_wrap=True)
        return []
    if find_spec("torch") is None:
        messages.print("training needs PyTorch: pip install '.[train]'", soft_wrap=True)
        return []
    with status("MLP") as remark:
        try:
            rows = list(measure_accuracy(folder, remark))
        except (EOFError, OSError, ValueError) as error:
            raise UsageError(f"{folder}: {error}") from None
    if arguments.output is not None:
        write_file(arguments.output / PLOT, plot(rows))
    return [{"circuit": row.circuit, "length": row.length, "images": row.images, "right_%": 100 * row.right}
            for row in rows]
