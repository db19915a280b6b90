"""Random layers on the generated Verilog: every value of every tensor equals the golden layers'."""

from functools import partial

import pytest

from cores.config import NpuConfig
from sim.cycles import estimate
from sim.rtl import Bus, RtlMachine
from sim.timing.dram import TICKS, DramTiming
from tests.compiled import compile_random
from tests.random_layers import random_graph
from tests.random_parts import random_parts

from .on_rtl import check_on_rtl, machines

#: One without and one with a choice of blocks in a set of outputs, one with a pixel at a time, narrow selection and as
#: little memory as can be built; one for small devices; and the largest preset.
CONFIGS = {
    "16": NpuConfig.preset(16),
    "64": NpuConfig.preset(64, oc_lanes=32, nnz_lanes=1),
    "32-tight": NpuConfig(
        oc_lanes=16, ic_lanes=8, nnz_lanes=2, pixel_lanes=1, select_fanin=4, acc_width=28, multiplier_width=18,
        hard_block_registers=0, input_depth=256, acc_depth=64, weight_depth=512, side_depth=512, queue_depth=4,
        outstanding_reads=4, outstanding_writes=2, address_width=32,
    ),
    "tiny": NpuConfig.preset(16, "tiny"),
    "1024": NpuConfig.preset(1024), "2048-dense": NpuConfig.preset(2048, "dense"),
}

machine = machines(CONFIGS, "64", "1024", "2048-dense")


def check(machine: RtlMachine, seed: int, *, max_size: int) -> None:
    program, graph = compile_random(machine.config, seed, max_size=max_size)
    check_on_rtl(machine, program, graph, seed, reused=True)


@pytest.mark.parametrize("number", range(14))
def test_random_layers(machine, seed, number):
    check(machine, seed + number, max_size=16)


def test_random_parts(machine, seed):
    parts = 0
    for number in range(4):
        program, graph = compile_random(machine.config, seed + number, max_size=6, make=random_parts)
        check_on_rtl(machine, program, graph, seed + number, reused=True)
        parts += sum(place.whole is not None for place in program.tensors.values())
    assert parts


def test_upsampled_layers(machine, seed):
    """Values, and the time model's cycles: where fetch cuts in on the loads of one network the next makes up for."""
    make = partial(random_graph, upsampled=0.9, layers=3, max_channels=40)
    modelled = measured = 0
    for number in range(5):
        program, graph = compile_random(machine.config, seed + number, max_size=10, make=make)
        measured += check_on_rtl(machine, program, graph, seed + number, bus=Bus(), reused=True).cycles
        modelled += estimate(program.config, program.code).cycles
    assert modelled == pytest.approx(measured, rel=0.015)


def test_cycles_of_a_small_machine(seed):
    """Instructions of four beats, queues of one instruction, and parts of pixels are exact in the time model. Where a
    fetch and a load change places, which one graph in seventy has, either is late by bursts of 16 beats."""
    apart = []
    with RtlMachine(CONFIGS["tiny"], seed=1) as machine:
        for number in range(seed, seed + 12):
            program, graph = compile_random(machine.config, number, max_size=12)
            result = check_on_rtl(machine, program, graph, number, bus=Bus(), reused=True)
            apart.append(abs(estimate(program.config, program.code).cycles - result.counters["cycles"]))
    assert sum(map(bool, apart)) <= 3 and max(apart) <= 64, apart


#: A beat in 1.4 cycles, shared by reads and writes, rows of 512 bytes in four banks, frequent refreshes.
DRAM = DramTiming(latency=35, beat=TICKS * 14 // 10, row_bytes=512, banks=4, row_miss=9 * TICKS,
                  refresh_interval=700 * TICKS, refresh=60 * TICKS, turn=4 * TICKS)


@pytest.mark.parametrize("number", range(2))
def test_dram(machine, seed, number):
    """Values with rows, refreshes and shared data pins in the way, and the time model's cycles."""
    program, graph = compile_random(machine.config, seed + number, max_size=12)
    result = check_on_rtl(machine, program, graph, seed, bus=Bus(dram=DRAM), reused=True)
    modelled = estimate(program.config, program.code, dram=DRAM).cycles
    assert result.cycles > estimate(program.config, program.code).cycles
    assert abs(modelled - result.cycles) <= max(200, 0.03 * result.cycles), (modelled, result.cycles)


@pytest.mark.full
@pytest.mark.parametrize("part", range(10))
def test_many_random_layers(machine, seed, part):
    for number in range(12):
        check(machine, seed + number, max_size=24)
