"""A design and what a tool made of it: equal in every cycle."""

import random

import cocotb
from cocotb.triggers import Timer

from tests.bench import bench_parameters


@cocotb.test()
async def outputs_are_equal(dut):
    parameters = bench_parameters()
    names, clocks = parameters["outputs"], [getattr(dut, clock) for clock in parameters["clocks"]]
    for clock in clocks:
        clock.value = 0
    for cycle in range(2000):
        for name, width in parameters["inputs"].items():
            # The lowest value now and then: its product is the only one that takes all bits.
            value = 1 << width - 1 if width > 1 and random.random() < 0.2 else random.getrandbits(width)
            if name == "rst":
                value = int(random.random() < 0.01)
            getattr(dut, name).value = value
        await Timer(1, "ns")
        equal = int(dut.equal.value)
        assert equal == (1 << len(names)) - 1, f"cycle {cycle}: " + ", ".join(
            name for place, name in enumerate(names) if not equal >> place & 1)
        clock = random.choice(clocks)
        for level in (1, 0):
            clock.value = level
            await Timer(1, "ns")
