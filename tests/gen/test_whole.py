"""Layers that hand on whole tensors in the input buffer: programs on the functional simulator, rules, cycles."""

import random
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from cores.arch.isa import Opcode
from gen.ir.errors import CompileError
from gen.ir.graph import Graph, Layer, Pool
from gen.ir.tensor import Tensor
from gen.lowering.steps import Step
from gen.lowering.verify import verify_mapped
from gen.mapping import chained, fused, whole
from gen.mapping.chained import ChainedLayers
from gen.mapping.fused import FusedLayers
from gen.mapping.registry import map_graph
from gen.mapping.trial import Trial
from gen.mapping.whole import WholeAfter, WholeLayer
from gen.memory.placement import Strips, WindowRows
from gen.options import CompileOptions
from sim.cycles import estimate
from tests.compiled import compile_kept
from tests.gen.test_chains import CONFIGS, ORDERS, chain_graph
from tests.gen.test_compiler import conv_graph, run_and_compare
from tests.gen.test_kept_tensors import chain
from tests.random_cases import MACHINES
from tests.random_layers import random_chains


def whole_always(monkeypatch: pytest.MonkeyPatch, chance: random.Random) -> None:
    """Tensors are handed on whole wherever that is possible, in any way, also after layers in a chain or fused."""
    for module in (chained, fused):
        monkeypatch.setattr(module, "_PROMISING", 1e9)
    monkeypatch.setattr(Trial, "ends", lambda self, steps: [chance.randrange(1000) for _ in steps])
    monkeypatch.setattr(Trial, "cycles", lambda self, steps, limit=0.0: (
        20 + chance.random() - 9 * any(isinstance(step, ChainedLayers | FusedLayers) for step in steps)
        - 15 * bool(wholes(steps)) - 2 * len(wholes(steps))
        - chance.choice((0, 12)) * any(isinstance(step, WholeAfter) for step in steps)))
    monkeypatch.setattr(whole, "_GAIN", 1.0)


@pytest.fixture
def always(monkeypatch: pytest.MonkeyPatch) -> None:
    whole_always(monkeypatch, random.Random(1))


def wholes(steps: Sequence[Step]) -> list[WholeLayer]:
    return [step for step in steps if isinstance(step, WholeLayer)]


@pytest.mark.slow
@pytest.mark.parametrize("name", CONFIGS)
def test_random_chains(name, seed, always):
    config, forms, after = CONFIGS[name], set[type](), 0
    for number in range(12):
        graph = random_chains(seed + number, count=3, max_channels=70, max_size=20)
        try:
            program, graph = compile_kept(graph, config, density=0.25 if number % 3 == 0 else None)
        except CompileError as error:
            assert error.code == "no-tile"
            continue
        mapped = map_graph(graph, config, CompileOptions())
        verify_mapped(mapped)
        forms |= {type(form) for step in wholes(mapped.steps) for form in step.kept.values()}
        after += sum(isinstance(step, WholeAfter) for step in mapped.steps)
        run_and_compare(program, graph, seed, ("load", "compute", "store", number))
    assert after and forms == {Strips, WindowRows}


def pooled_graph(rng: np.random.Generator, size: tuple[int, int], *, maximum: bool, channels: int = 40) -> Graph:
    """A pointwise layer, the mean or largest value of each channel, and a pointwise layer."""
    graph = chain(rng, 20, channels, channels, 17, size=size, pooled=2)
    first, pool, last = graph.layers
    assert isinstance(pool, Pool)
    count = size[0] * size[1]
    stage = replace(pool.requantize, multiplier=np.full(channels, (1 << 16) // (1 if maximum else count)))
    pool = replace(pool, kernel=size, maximum=maximum, requantize=stage)
    tensors = {name: replace(tensor, shape=(tensor.shape[0], 1, 1)) if name in ("t2", "t3") else tensor
               for name, tensor in graph.tensors.items()}
    return replace(graph, tensors=tensors, layers=(first, pool, last))


@pytest.mark.parametrize("size", [(6, 7), (25, 5), (9, 9), (1, 3)], ids=str)
@pytest.mark.parametrize("maximum", [False, True])
def test_pools(size, maximum, always, rng):
    """A map is one long row for a pool of all of it, in several pieces if that is longer than a window can be."""
    graph, config = pooled_graph(rng, size, maximum=maximum), CONFIGS["256"]
    program, _ = compile_kept(graph, config)
    assert set(program.tensors) == {"t0", "t3"}
    pools = [i for i in program.instructions if i.opcode is Opcode.POOL]
    assert len(pools) == 3 * (1 + size[0] * size[1] // 60)
    for order in ORDERS:
        run_and_compare(program, graph, 1, (order,))


def test_many_pooled_blocks(always, rng):
    """Each block has a STORE, which may come before the reader's first COMPUTE: more than a counter of tokens holds."""
    graph = pooled_graph(rng, (1, 2), maximum=True, channels=2400)
    program, _ = compile_kept(graph, CONFIGS["32"])
    assert set(program.tensors) == {"t0", "t3"}
    run_and_compare(program, graph, 1, ("store",))


@pytest.mark.parametrize("name", ["32", "256"])
@pytest.mark.parametrize("depthwise", [(False, True, False), (True, True, True)], ids=str)
def test_depthwise_layers_of_one_tap(name, depthwise, always, rng):
    """Their maps are one long row in other places."""
    for size in ((4, 4), (5, 7)):
        tensors, layers = dict[str, Tensor](), list[Layer]()
        for number, alone in enumerate(depthwise):
            one = conv_graph(rng.integers(-60, 61, (30, 1 if alone else 30, 1, 1)), size, depthwise=alone)
            names = {"name": f"t{number + 1}", "input": f"t{number}", "output": f"t{number + 1}"}
            tensors |= {names[key]: replace(one.tensors["x"], name=names[key]) for key in ("input", "output")}
            layers.append(replace(one.layers[0], **names))
        graph = Graph("g", tensors, tuple(layers), {"x": ("t0", ())}, {"y": ("t3", ())})
        program, _ = compile_kept(graph, CONFIGS[name])
        assert size == (5, 7) or "t2" not in program.tensors
        run_and_compare(program, graph, 1, ("load", "store"))


def test_rows_that_are_stored_in_bands(always):
    """A depthwise layer that loads its input stores whole tiles where bands of them would not begin with an entry."""
    graph = chain_graph((29, 29, 29, 111), (12, 14), pads=(0, 0, 1, 1))
    graph = replace(graph, layers=graph.layers[1:], inputs={"x": ("a", ())})
    program, _ = compile_kept(graph, MACHINES["windows"])
    assert "b" not in program.tensors
    run_and_compare(program, graph, 1, ORDERS[:2])


def test_layers_after_those_that_stay():
    """What comes after layers that hand on whole tensors is tried with all of these, back to the one that loads."""
    mapped = map_graph(random_chains(1, count=5, max_channels=130, max_size=9), CONFIGS["64"], CompileOptions())
    verify_mapped(mapped)
    assert any(isinstance(step, WholeAfter) for step in mapped.steps)


def test_rows_too_long_to_pad():
    """No LOAD_SET has so many columns with their padding: layers stay as they were."""
    graph = chain_graph((8, 8, 8, 8), (1, 4094))
    config = replace(CONFIGS["256"], input_depth=16384, acc_depth=4096)
    assert not wholes(map_graph(graph, config, CompileOptions()).steps)


def test_small_maps_gain():
    """Depthwise and pointwise layers by turns, on a map of 8x8."""
    graph, config = random_chains(5, count=3, max_channels=64, max_size=8), CONFIGS["256"]
    before, after = (estimate(config, compile_kept(graph, config, fusion=mode)[0].code).cycles
                     for mode in ("off", "auto"))
    assert before > 1.1 * after
