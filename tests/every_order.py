"""Programs on the functional simulator, with all that a machine may meet: any order of its queues, noise in padding."""

import numpy as np

from gen.ir.graph import Graph
from gen.program.program import Program
from sim.functional import ORDERS, run
from tests.compiled import check_tensors, golden_tensors, random_image
from tests.random_layers import random_inputs

__all__ = ["check_in_every_order", "soil"]


def check_in_every_order(program: Program, graph: Graph, seed: int) -> None:
    """Every tensor of a program compiled with ``keep_all`` is the golden layers', and no access is a hazard."""
    inputs = random_inputs(graph, seed)
    golden = golden_tensors(graph, inputs)
    for order in ORDERS:
        image = soil(program, random_image(program, inputs, seed), seed)
        run(program.config, program.code, image, write_start=program.write_start, strict=True, order=order)
        check_tensors(program, graph, image, golden, f"seed {seed}, order {order}")


def soil(program: Program, image: np.ndarray, seed: int) -> np.ndarray:
    """A data region with noise in all bytes of inputs that are none of their values; modified in place.

    Binary layers count on the zeros that a driver packs there (`gen.ir.channel_padding`): a program with one has them.
    """
    if any(layer.mode == "binary" for layer in program.layers):
        return image
    tn, rng = program.config.ic_lanes, np.random.default_rng(seed)
    for name in program.inputs.values():
        place, values = program.tensors[name], np.zeros_like(image)
        program.pack_input(values, name, np.ones(place.shape, np.int8))
        beats = slice(place.offset * tn, (place.offset + place.beats(tn)) * tn)
        image[beats] = np.where(values[beats], image[beats], rng.integers(0, 256, len(image[beats]), np.uint8))
    return image
