"""Random depthwise and pointwise layers on the generated Verilog, fused wherever that is possible."""

import math
import random
from functools import partial

import numpy as np
import pytest

from cores.arch.error_codes import ErrorCode
from cores.arch.isa import Opcode
from cores.config import NpuConfig
from gen.mapping.fused import FusedLayers
from gen.mapping.trial import Trial
from sim.cycles import estimate
from sim.errors import MachineError
from sim.rtl import Bus, RtlMachine, run_program
from tests.compiled import compile_kept, compile_random
from tests.gen.test_chains import chain_always
from tests.gen.test_kept_tensors import chain, compiled
from tests.gen.test_whole import pooled_graph, whole_always
from tests.random_cases import MACHINES
from tests.random_layers import random_chains, random_pairs

from .local_programs import copy_program
from .on_rtl import check_on_rtl, machines
from .programs import assemble, from_blocks

CONFIGS = {
    "32": NpuConfig.preset(32, depthwise=1, local_store=1),
    "64": NpuConfig(oc_lanes=16, ic_lanes=8, nnz_lanes=4, input_depth=512, acc_depth=64, weight_depth=512, depthwise=1,
                    local_store=1),
    "own taps": NpuConfig(oc_lanes=16, ic_lanes=8, nnz_lanes=4, select_fanin=2, input_depth=512, acc_depth=64,
                          weight_depth=512, depthwise=1, local_store=1),
    # Loads that gather the rows of an image wait for stores to the input buffer, too.
    "image": MACHINES["windows"],
}

machine = machines(CONFIGS, "64", "own taps")


@pytest.fixture
def always(seed, monkeypatch):
    """Fuse wherever it is possible, in any of the ways that are tried."""
    monkeypatch.setattr("gen.mapping.fused._PROMISING", math.inf)
    chance = random.Random(seed)
    monkeypatch.setattr(Trial, "cycles", lambda self, steps, limit=math.inf: (
        20 + chance.random() - 9 * sum(isinstance(step, FusedLayers) for step in steps)))


@pytest.mark.parametrize("pitch", [0, 9])
def test_copies(machine, seed, pitch):
    """By hand: a map copied to the input buffer and read there; beyond its end, BUFFER; and then once more."""
    config, rng = machine.config, np.random.default_rng(seed)
    for place, good in ((config.input_depth - 80, True), (config.input_depth - 3, False), (1 << 20, False), (60, True)):
        flags = {} if good else {"second": {"buf_base": 0}}
        program, image, start, expected = copy_program(rng, config, rows=4, cols=9, pitch=pitch, place=place, **flags)
        image = image.copy()
        machine.set_bus(Bus(latency=int(rng.integers(1, 60))))
        if good:
            result = run_program(machine, assemble(*program), image, write_start=start)
            for beat, value in expected:
                np.testing.assert_array_equal(from_blocks(config, result.image, beat, value.shape), value)
        else:
            with pytest.raises(MachineError) as caught:
                run_program(machine, assemble(*program), image, write_start=start)
            assert caught.value.cause is ErrorCode.BUFFER
            assert program[caught.value.index].opcode is Opcode.STORE


def check(machine: RtlMachine, seed: int, *, max_size: int) -> int:
    """Run random pairs of layers; returns how many layers were fused."""
    program, graph = compile_random(machine.config, seed, max_size=max_size, make=random_pairs)
    check_on_rtl(machine, program, graph, seed, reused=True)
    return [layer.mode for layer in program.layers].count("fused")


def test_random_pairs(machine, seed, always):
    assert sum(check(machine, seed + number, max_size=16) for number in range(20)) > 8


def check_cycles(machine: RtlMachine, seed: int) -> int:
    """Run random chains of layers; the time model knows how long they take. Returns how many layers were fused."""
    found, make = 0, partial(random_chains, image=bool(machine.config.gather))
    for number in range(12):
        program, graph = compile_random(machine.config, seed + number, max_size=16, make=make)
        found += [layer.mode for layer in program.layers].count("fused")
        check_on_rtl(machine, program, graph, seed + number, reused=True)
        ideal = check_on_rtl(machine, program, graph, seed + number, bus=Bus(), reused=True)
        assert abs(estimate(machine.config, program.code).cycles - ideal.cycles) <= max(0.005 * ideal.cycles, 12)
    return found


def test_random_chains(machine, seed, monkeypatch):
    """Three layers as one pass, in any way."""
    chain_always(monkeypatch, random.Random(seed))
    assert check_cycles(machine, seed) > 8


def test_whole_tensors_stay(machine, seed):
    """From layer to layer in the input buffer, in several strips; a copy reads and writes one, too."""
    graph = chain(np.random.default_rng(seed), 20, 30, 30, 24, 17, size=(6, 14), pooled=2)
    program = compiled(graph, machine.config, "t1", "t2", "t3", parts=3)
    check_on_rtl(machine, program, graph, seed)


def test_random_whole_tensors(machine, seed, monkeypatch):
    """With padding that is loaded in advance, and layers without any loads but those of weights."""
    whole_always(monkeypatch, random.Random(seed))
    assert check_cycles(machine, seed) > 8


@pytest.mark.parametrize("maximum", [False, True])
def test_whole_pools(machine, seed, maximum, monkeypatch):
    whole_always(monkeypatch, random.Random(seed))
    graph = pooled_graph(np.random.default_rng(seed), (8, 8), maximum=maximum)
    program, _ = compile_kept(graph, machine.config)
    assert "t1" not in program.tensors
    check_on_rtl(machine, program, graph, seed)


@pytest.mark.full
@pytest.mark.parametrize("part", range(8))
def test_many_random_chains(machine, seed, part, monkeypatch):
    chain_always(monkeypatch, random.Random(seed))
    for number in range(12):
        program, graph = compile_random(machine.config, seed + 100 * part + number, max_size=24, make=random_chains)
        check_on_rtl(machine, program, graph, seed + number, reused=True)


@pytest.mark.full
@pytest.mark.parametrize("part", range(8))
def test_many_random_pairs(machine, seed, part, always):
    for number in range(12):
        check(machine, seed + 100 * part + number, max_size=24)
