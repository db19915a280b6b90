"""Layers of a profile add up to the whole, whatever the program."""

from dataclasses import dataclass, replace

import numpy as np
import pytest

from cores.config import NpuConfig
from cores.isa import Opcode, decode
from cores.registers import ENGINE_STATES
from sim.cycles import estimate
from sim.profile import instruction_beats, layer_timings

from .cases import SMALL, chain

STATES = ENGINE_STATES["compute"]


@dataclass(frozen=True)
class Layer:
    name: str
    op: str
    mode: str
    macs: int
    useful_macs: int


@dataclass(frozen=True)
class Program:
    config: NpuConfig
    code: bytes
    layers: tuple[Layer, ...]
    instruction_layers: tuple[int, ...]


@pytest.fixture
def program(seed) -> Program:
    code = chain(seed)[0]
    count = len(code) // 16
    half = 22                       # a LOAD_SET and three tiles of seven instructions
    assert decode(code[16 * half:16 * half + 16]).opcode == Opcode.LOAD_SET
    layers = (Layer("first", "conv", "dense", 46656, 23328), Layer("second", "conv", "dense", 5184, 5184))
    return Program(SMALL, code, layers, (0,) * half + (1,) * (count - half - 1) + (-1,))


def test_layers_add_up(program):
    timing = estimate(SMALL, program.code)
    layers = layer_timings(program, timing, timing.cycles)
    assert [layer.name for layer in layers] == ["first", "second"]
    assert sum(layer.cycles for layer in layers) == timing.cycles
    # END's own fetch belongs to no layer.
    beats = timing.read_beats + timing.write_beats
    assert sum(layer.dram_bytes for layer in layers) == beats * SMALL.beat_bytes - 16
    for layer, known in zip(layers, program.layers, strict=True):
        assert (layer.macs, layer.useful_macs) == (known.macs, known.useful_macs)
        assert layer.utilisation == known.useful_macs / (SMALL.macs * layer.cycles)
        assert min(layer.stalls.values()) >= 0


def test_cycles_are_work_and_stalls(program):
    timing = estimate(SMALL, program.code)
    layers = layer_timings(program, timing, timing.cycles)
    owners = np.array(program.instruction_layers)
    for number, layer in enumerate(layers):
        busy = int(timing.counts[1, STATES.index("busy"), owners == number].sum())
        assert layer.cycles == busy + sum(layer.stalls.values())
        assert set(layer.stalls) == {"setup", "wait_load", "wait_store", "wait_weights", "idle"}
    # The second layer waits for the first one's stores: its loads do, and therefore its first tile.
    assert layers[1].stalls["wait_load"] > 40


def test_traffic(program):
    instructions = [decode(program.code[at:at + 16]) for at in range(0, len(program.code), 16)]
    beats = instruction_beats(instructions)
    timing = estimate(SMALL, program.code)
    assert beats.sum() == timing.read_beats - 2 * len(instructions) + timing.write_beats


def test_record_of_another_program(program):
    timing = estimate(SMALL, program.code)
    with pytest.raises(ValueError, match=r"record of \d+ instructions, program of \d+"):
        layer_timings(replace(program, code=program.code[:160]), timing, timing.cycles)
