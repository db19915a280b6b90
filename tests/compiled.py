"""Compiled graphs: random programs, their memory, and the golden layers' values of every tensor."""

import random
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from cores.config import NpuConfig
from gen.compiler import compile_graph
from gen.ir.errors import CompileError
from gen.ir.graph import Graph
from gen.ir.parts import ByChannel, without_gaps
from gen.options import CompileOptions
from gen.program.program import Program
from sim import golden
from tests.random_layers import random_graph


def compile_kept(graph: Graph, config: NpuConfig, **options: Any) -> tuple[Program, Graph]:
    """`compile_graph` with these options and every tensor in a place of its own, to be compared."""
    return compile_graph(graph, config, CompileOptions(**options, keep_all=True))


def compile_random(config: NpuConfig, seed: int, *, max_size: int,
                   make: Callable[..., Graph] = random_graph) -> tuple[Program, Graph]:
    """A random program, in half of which tensors make room for others.

    A graph whose smallest tile is too large for the smallest memories gives way to another.
    """
    for attempt in range(4):
        chance = random.Random(seed + 1000 * attempt)
        graph = make(seed + 1000 * attempt, max_size=max_size)
        try:
            return compile_graph(graph, config, CompileOptions(
                density=chance.choice([None, None, 0.25, 0.5]), keep_all=chance.choice([False, True])))
        except CompileError as error:
            assert error.code == "no-tile"
    raise AssertionError("the compiler refuses one graph after the other")


def random_image(program: Program, inputs: Mapping[str, np.ndarray], seed: int) -> np.ndarray:
    """The data region with ``inputs`` filled in and noise where results will be."""
    image = np.random.default_rng(seed).integers(0, 256, program.data_beats * program.config.beat_bytes, np.uint8)
    image[:len(program.constants)] = np.frombuffer(program.constants, np.uint8)
    for name, values in inputs.items():
        program.pack_input(image, name, values)
    return image


def golden_tensors(graph: Graph, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Every tensor of a graph, by the golden layers."""
    tensors = ByChannel(graph.tensors)
    for name, values in {**graph.constants, **inputs}.items():
        tensors[name] = values[None]
    for layer in graph.layers:
        tensors[layer.output] = golden.run_layer(
            layer, tensors[layer.input], [tensors[name] for name in layer.reads[1:]],
            zero_point=graph.tensors[layer.input].zero_point)
    return {name: tensors[name][0] for name in (*inputs, *(layer.output for layer in graph.layers))}


def check_tensors(program: Program, graph: Graph, image: np.ndarray, tensors: Mapping[str, np.ndarray],
                  what: str, *, reused: bool = False) -> None:
    """Compare what layers left in memory; some hand their result on inside the machine.

    ``reused``: the program may have been compiled without ``keep_all``, so that some have made room for others.
    """
    assert reused or all(map(program.holds, program.tensors)), "compile it with keep_all, so that all is compared"
    for layer in graph.layers:
        if program.holds(layer.output):
            found, expected = (without_gaps(graph.tensors[layer.output], values) for values in (
                program.unpack_tensor(image, layer.output), tensors[layer.output]))
            np.testing.assert_array_equal(found, expected, f"{what}, layer {layer.name}")
