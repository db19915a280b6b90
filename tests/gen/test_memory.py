"""Places of feature maps: lifetimes, reuse, and that everything is there when it is read."""

from itertools import combinations

import numpy as np
import pytest

from cores.config import NpuConfig
from gen.compiler import compile_graph
from gen.ir.epilogue.add import Add
from gen.ir.graph import Conv, Graph
from gen.ir.tensor import Requantize, Tensor
from gen.ir.verify import verify
from gen.memory.placement import ALIGNMENT, Placement
from gen.memory.region import Constants, Lifetime, arrange
from gen.options import CompileOptions
from tests.gen.test_compiler import run_and_compare
from tests.random_layers import random_graph

CONFIG = NpuConfig.preset(64)


def chain(layers: int, rng: np.random.Generator, *, residuals: bool = False) -> Graph:
    """1x1 convolutions of 32 channels, 32x32, one after the other; each adds what the one before it has read."""
    tensors = {"t0": Tensor("t0", (32, 32, 32), 1.0, 0)}
    convolutions = []
    for number in range(1, layers + 1):
        target = Tensor(f"t{number}", (32, 32, 32), 1.0, 0)
        weights = rng.integers(-20, 21, (32, 32, 1, 1)).astype(np.int16)
        stage = Requantize(np.zeros(32, np.int64), np.full(32, 1 << 16), np.full(32, 24), 0, -128, 127)
        added = Add(middle=target, other=f"t{number - 2}", multiplier_a=1 << 13, multiplier_b=1 << 13, constant=0,
                    shift=14, zero_point=0, low=-128, high=127)
        convolutions.append(Conv(target.name, f"t{number - 1}", target.name, weights=weights, requantize=stage,
                                 epilogue=(added,) if residuals and number > 1 else ()))
        tensors[target.name] = target
    graph = Graph("chain", tensors, tuple(convolutions), {"x": ("t0", ())}, {"y": (f"t{layers}", ())})
    verify(graph)
    return graph


@pytest.mark.slow
def test_a_chain_takes_two_tensors(rng):
    graph = chain(20, rng)
    program, _ = compile_graph(graph, CONFIG)
    assert (program.data_beats - program.write_start) * CONFIG.beat_bytes == 2 * 32 * 32 * 32
    assert [name for name in graph.tensors if program.holds(name)] == ["t19", "t20"]
    run_and_compare(program, graph, 1, ("load", "store"), reused=True)
    program, _ = compile_graph(graph, CONFIG, CompileOptions(keep_all=True))
    assert (program.data_beats - program.write_start) * CONFIG.beat_bytes == 21 * 32 * 32 * 32
    assert all(map(program.holds, graph.tensors))


@pytest.mark.slow
def test_what_is_added_is_kept_for_a_step_more(rng):
    """Side data of a tile may be loaded when the next step has begun."""
    graph = chain(12, rng, residuals=True)
    program, _ = compile_graph(graph, CONFIG)
    assert (program.data_beats - program.write_start) * CONFIG.beat_bytes == 4 * 32 * 32 * 32
    run_and_compare(program, graph, 1, ("load", "compute", "store", 7), reused=True)


@pytest.mark.slow
@pytest.mark.parametrize("layers", [5, 9])
def test_random_graphs_in_little_memory(layers, seed):
    """In strict mode: every access is ordered by tokens."""
    for number in range(6):
        graph = random_graph(seed + number, layers=layers, max_size=10, max_channels=40)
        program, graph = compile_graph(graph, CONFIG)
        run_and_compare(program, graph, seed, ("load", "compute", "store", number), reused=True)


def test_nothing_lies_over_another_of_its_time(rng):
    for _ in range(50):
        tensors = {}
        for number in range(int(rng.integers(1, 30))):
            first = int(rng.integers(-1, 20))
            place = Placement(0, tuple(int(size) for size in rng.integers(1, 40, 3)))
            tensors[str(number)] = place, Lifetime(first, first + int(rng.integers(0, 8)))
        places, end = arrange(tensors, 512, 16)
        assert list(places) == list(tensors)
        for place in places.values():
            assert place.offset >= 512 and place.offset * 16 % ALIGNMENT == 0 and place.offset + place.beats(16) <= end
        for one, other in combinations(tensors, 2):
            if tensors[one][1].meets(tensors[other][1]):
                assert not places[one].overlaps(places[other], 16)


def test_equal_constants_are_one(rng):
    constants = Constants()
    one, other = (rng.integers(0, 255, (size, 16)).astype(np.uint8) for size in (5, 3))
    assert [constants.add(array) for array in (one, other, one.copy(), other)] == [0, 5, 0, 5]
    assert np.array_equal(constants.data(), np.concatenate([one, other]))
