"""Streams that the driver makes shorter between two inferences of a program that is loaded once."""

from pathlib import Path

import numpy as np
import pytest

from cores.config import NpuConfig
from cores.device import driver_machine
from gen.options import CompileOptions
from gen.run.deployed import deployed
from gen.run.inputs import Samples
from gen.run.runner import run_model
from gen.run.workload import Workload, open_workload
from npudriver import Device, DeviceError
from sim.devices import FunctionalBackend
from sim.stochastic.streams import Streams
from tests.gen.qdq import Builder

from . import small

CONFIG = NpuConfig.preset(16, **NpuConfig.preset(16).feature_fields(["stochastic"]))


def workload(rng: np.random.Generator) -> Workload:
    """int8 (8, 4, 4) -> int8 (8, 4, 4), by streams of 64 bits."""
    b = Builder(rng)
    real = b.dequantize(b.input(1, 8, 4, 4), zero_point=0)
    b.output(b.quantize(b.node("Conv", real, b.weights(8, 8, 3, 3), pads=[1, 1, 1, 1]), zero_point=0))
    content = b.build().SerializeToString()
    name = open_workload(Path("streams.onnx"), CONFIG, content=content).graph.layers[0].name
    return open_workload(Path("streams.onnx"), CONFIG, CompileOptions(stochastic={name: Streams(64)}, keep_all=True),
                         content=content)


def test_streams_get_shorter_in_turn(rng):
    """Each sample's result is the reference's at its length, in the fewer cycles; the program is loaded once."""
    model = workload(rng)
    samples = Samples({"x": rng.integers(-128, 128, (4, 8, 4, 4), dtype=np.int8)}, None)
    with Device(FunctionalBackend(CONFIG), driver_machine(CONFIG)) as device:
        result = run_model(model, samples, "board", device=device, stream_shifts=(0, 2))
        assert device.stream_shift == 2 and len(device._programs) == 1
    assert result.mismatches == 0 and result.compared
    cycles = [inference.cycles for inference in result.inferences]
    assert cycles[0] == cycles[2] > cycles[1] == cycles[3]
    exact = run_model(model, samples, "board", device=Device(FunctionalBackend(CONFIG), driver_machine(CONFIG)))
    differ = [not np.array_equal(one, other) for one, other in zip(
        *(next(iter(run.outputs.values())) for run in (result, exact)), strict=True)]
    assert differ == [False, True, False, True]


def test_what_the_device_does_not_have(rng):
    with Device(FunctionalBackend(small.CONFIG), small.machine_of_json()) as device:
        device.stream_shift = 1
        with device.load(small.program()) as program, pytest.raises(DeviceError, match="has no streams that could"):
            program.run(small.samples(rng, 1)[0])
    model = deployed(workload(rng))
    with Device(FunctionalBackend(CONFIG), driver_machine(CONFIG)) as device:
        device.stream_shift = 8
        with device.load(model) as program, pytest.raises(DeviceError, match="shorter by 8 powers of two"):
            program.run({"x": np.zeros((8, 4, 4), np.int8)})
