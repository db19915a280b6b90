"""A small model for the driver's tests: one convolution, less than a thousand cycles."""

from functools import cache
from pathlib import Path

import numpy as np

from cores.config import NpuConfig
from cores.device import driver_machine
from gen.ir import reference
from gen.run.workload import Workload, open_workload
from npudriver import DeployedProgram, Machine
from sim.cycles import estimate
from tests.gen.qdq import Builder

CONFIG = NpuConfig.preset(16)
MACHINE = driver_machine(CONFIG)


@cache
def workload(seed: int = 0, channels: int = 4) -> Workload:
    """uint8 (channels, 6, 6) -> uint8 (8, 6, 6)."""
    b = Builder(np.random.default_rng(seed), number=np.uint8)
    real = b.dequantize(b.input(1, channels, 6, 6))
    b.output(b.quantize(b.node("Conv", real, b.weights(8, channels, 3, 3), pads=[1, 1, 1, 1])))
    return open_workload(Path(f"small{seed}.onnx"), CONFIG, content=b.build().SerializeToString())


@cache
def program(seed: int = 0, channels: int = 4) -> DeployedProgram:
    return workload(seed, channels).program.deployed


def cycles(seed: int = 0, channels: int = 4) -> int:
    """Of an inference, by the time model."""
    return estimate(CONFIG, program(seed, channels).code).cycles


def samples(rng: np.random.Generator, count: int, channels: int = 4) -> list[dict[str, np.ndarray]]:
    return [{"x": x} for x in rng.integers(0, 256, (count, channels, 6, 6), np.uint8)]


def expected(inputs: dict[str, np.ndarray], seed: int = 0, channels: int = 4) -> np.ndarray:
    """What the golden layers make of a sample."""
    outputs, _ = reference.run(workload(seed, channels).graph, {"x": inputs["x"][None]})
    (value,) = outputs.values()
    return value[0]


def machine_of_json() -> Machine:
    """As a board has it."""
    return Machine.from_json(MACHINE.to_json())
