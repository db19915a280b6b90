"""A design of multipliers and its netlist with registers inside of them: equal in every cycle."""

import random

import cocotb
from cocotb.triggers import Timer

from tests.bench import bench_parameters

_WIDTHS = {"enable": 1, "reset": 1, "a": 8, "b": 8, "wide": 18, "middle": 12}


@cocotb.test()
async def outputs_are_equal(dut):
    names = bench_parameters()["outputs"]
    dut.clk.value = 0
    dut.clk2.value = 0
    for cycle in range(2000):
        for name, width in _WIDTHS.items():
            # The lowest value now and then: its product is the only one that takes all bits.
            value = 1 << width - 1 if width > 1 and random.random() < 0.2 else random.getrandbits(width)
            getattr(dut, name).value = value
        await Timer(1, "ns")
        equal = int(dut.equal.value)
        assert equal == (1 << len(names)) - 1, f"cycle {cycle}: " + ", ".join(
            name for place, name in enumerate(names) if not equal >> place & 1)
        clock = dut.clk2 if random.random() < 0.4 else dut.clk
        for level in (1, 0):
            clock.value = level
            await Timer(1, "ns")
