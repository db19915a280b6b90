"""Small machines that together have every unit, and seeded random networks of every kind for them."""

import random
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from cores.arch.stochastic import Circuit
from cores.config import NpuConfig
from gen.compiler import compile_graph
from gen.ir.errors import CompileError
from gen.ir.graph import Graph
from gen.options import CompileOptions
from gen.program.program import Program
from tests.random_binary import random_binary_graph
from tests.random_int4 import random_int4
from tests.random_layers import random_graph, random_pairs, with_products, with_tables
from tests.random_maxima import random_maxima
from tests.random_parts import random_parts
from tests.random_products import random_products
from tests.random_rows import random_rows
from tests.random_streams import centred, random_choice

__all__ = ["KINDS", "MACHINES", "Case", "compile_case", "random_case"]

_SMALL = dict(input_depth=512, acc_depth=64, weight_depth=512)
#: Memories are so small that layers are cut into many tiles.
MACHINES = {
    "plain": NpuConfig(oc_lanes=8, ic_lanes=8, nnz_lanes=2, **{**_SMALL, "input_depth": 256}),
    "windows": NpuConfig(oc_lanes=16, ic_lanes=8, nnz_lanes=4, depthwise=1, local_store=1, gather=1, **_SMALL),
    "binary": NpuConfig(oc_lanes=16, ic_lanes=8, nnz_lanes=4, depthwise=1, local_store=1, gather=1, binary_rows=8,
                        winograd=1, **_SMALL),
    "own taps": NpuConfig(oc_lanes=16, ic_lanes=8, nnz_lanes=4, select_fanin=2, depthwise=1, local_store=1, gather=1,
                          **_SMALL),
    "exact": NpuConfig(oc_lanes=16, ic_lanes=8, nnz_lanes=4, winograd=2, multiplier_width=18, gather=1,
                       **{**_SMALL, "acc_depth": 128, "input_depth": 1024}),
    "engine": NpuConfig(oc_lanes=32, ic_lanes=16, nnz_lanes=4, gather=1, depthwise=1, binary_rows=16, binary_engine=1,
                        local_store=1, **_SMALL),
    "one pixel": NpuConfig(oc_lanes=16, ic_lanes=8, nnz_lanes=2, pixel_lanes=1, select_fanin=4, acc_width=28,
                           multiplier_width=18, hard_block_registers=0, side_depth=512, queue_depth=4,
                           outstanding_reads=4, outstanding_writes=2, address_width=32, table=1, product=1, turn=1,
                           rows=16, **{**_SMALL, "input_depth": 256}),
    "streams": NpuConfig(oc_lanes=8, ic_lanes=8, nnz_lanes=2, stochastic_circuit=Circuit.AND_LOOP, stochastic_rows=2,
                         stochastic_bits=1, **_SMALL),
    "all": NpuConfig(oc_lanes=16, ic_lanes=16, nnz_lanes=2, depthwise=1, local_store=1, gather=1, binary_rows=2,
                     winograd=1, table=1, product=1, stochastic_circuit=Circuit.AND_LOOP, stochastic_rows=4,
                     stochastic_bits=1, **_SMALL),
    "stages": NpuConfig(oc_lanes=16, ic_lanes=8, nnz_lanes=4, depthwise=1, local_store=1, gather=1, table=1, product=1,
                        rows=16, turn=1, store_multipliers=3, maximum=1, int4=1, limits=1,
                        **_SMALL),
    "narrow stores": NpuConfig(oc_lanes=8, ic_lanes=8, nnz_lanes=2, table=1, store_lanes=4, **_SMALL),
    "tiny": NpuConfig.preset(16, "tiny", gather=1, local_store=1, table=1, int4=1, **_SMALL),
}


@dataclass(frozen=True)
class _Kind:
    """``make``: from a seed and the largest height and width; ``unit``: what a machine needs for it to be of use."""

    make: Callable[[int, int], Graph]
    unit: str = ""


KINDS = {
    "layers": _Kind(lambda seed, size: random_graph(seed, max_size=size)),
    "pairs": _Kind(lambda seed, size: random_pairs(seed, max_size=size)),
    "parts": _Kind(lambda seed, size: random_parts(seed, max_size=min(size, 6))),
    "depthwise": _Kind(lambda seed, size: random_graph(seed, max_size=size, depthwise=0.5), "depthwise"),
    "winograd": _Kind(lambda seed, size: random_graph(seed, max_size=size, winograd=0.7), "winograd"),
    "binary": _Kind(lambda seed, size: random_binary_graph(seed, max_size=size), "binary_rows"),
    "tables": _Kind(lambda seed, size: with_tables(random_graph(seed, max_size=size), seed), "table"),
    "products": _Kind(lambda seed, size: with_products(random_graph(seed, max_size=size), seed), "product"),
    "groups": _Kind(lambda seed, size: random_graph(seed, layers=3, max_size=size, grouped=0.7)),
    "maxima": _Kind(lambda seed, size: random_maxima(seed, max_channels=40, max_size=size, tables=0.3), "maximum"),
    "int4": _Kind(lambda seed, size: random_int4(seed, max_size=size), "int4"),
    "rows": _Kind(lambda seed, size: random_rows(seed, largest=4 * size), "rows"),
    "matrices": _Kind(lambda seed, size: random_products(seed, largest=4 * size, parts=2), "turn"),
    "streams": _Kind(lambda seed, size: centred(seed, max_size=min(size, 8), max_channels=24), "stochastic_rows"),
}


@dataclass(frozen=True, eq=False)
class Case:
    kind: str
    graph: Graph
    options: CompileOptions


def random_case(config: NpuConfig, seed: int, *, max_size: int = 14) -> Case:
    """A network of one of `KINDS`, each in turn that the machine has the unit of, and options to compile it with."""
    names = [name for name, kind in KINDS.items() if not kind.unit or getattr(config, kind.unit)]
    name, chance = names[seed % len(names)], random.Random(seed)
    graph = KINDS[name].make(seed, max_size)
    choice = random_choice(graph, config, np.random.default_rng(seed), most=16) if name == "streams" else {}
    return Case(name, graph, CompileOptions(
        density=chance.choice([None, None, 0.25, 0.5]), keep_all=chance.choice([False, True]), stochastic=choice))


def compile_case(config: NpuConfig, seed: int, *, max_size: int = 14) -> tuple[Case, Program, Graph]:
    """A case that fits, and what the compiler makes of it; a network that does not gives way to a smaller one.

    Raises CompileError where none fits.
    """
    while True:
        case = random_case(config, seed, max_size=max_size)
        try:
            return case, *compile_graph(case.graph, config, case.options)
        except CompileError as error:
            if error.code != "no-tile" or max_size < 4:
                raise
            max_size //= 2
