"""Streams that the driver makes shorter between two inferences of a program that is loaded once."""

import subprocess
from pathlib import Path

import numpy as np
import pytest

from boards.registry import get_board
from cores.device import driver_machine
from gen.deploy.c_sources import c_sources
from gen.deploy.package import encoded_sample
from gen.ir import reference
from gen.passes.streams import shorten_streams
from gen.run.inputs import Samples
from gen.run.runner import run_model
from npudriver import Device, DeviceError
from sim.cycles import estimate
from sim.devices import FunctionalBackend

from . import small
from .compiled_c import on_rtl
from .small_streams import CONFIG, workload


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
    model = workload(rng).program.deployed
    with Device(FunctionalBackend(CONFIG), driver_machine(CONFIG)) as device:
        device.stream_shift = 8
        with device.load(model) as program, pytest.raises(DeviceError, match="shorter by 8 powers of two"):
            program.run({"x": np.zeros((8, 4, 4), np.int8)})


def test_in_c_on_the_verilog(rng, tmp_path: Path):
    """One program that is loaded once; each result is the reference's at its length, however often it is changed."""
    model = workload(rng)
    x = rng.integers(-128, 128, (1, 8, 4, 4), dtype=np.int8)
    sample = encoded_sample(model.program.deployed, model, Samples({"x": x}, None))
    for name, content in c_sources(CONFIG, model.program.deployed, get_board("zu3eg"), sample).items():
        (tmp_path / name).write_bytes(content)
    example, shifts = on_rtl(tmp_path, "streams.c", CONFIG), (2, 0, 1, 7, 0)
    done = subprocess.run([example, *map(str, shifts)], cwd=tmp_path, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    wanted = [reference.run(shorten_streams(model.graph, shift), {"x": x})[0] for shift in shifts]
    lines = [line.split() for line in done.stdout.splitlines()]
    assert [values for _, values in lines] == [next(iter(one.values()))[0].tobytes().hex() for one in wanted]
    assert len({values for _, values in lines}) == 4
    cycles = [estimate(model.program.config, model.program.code, stream_shift=shift).cycles for shift in shifts]
    assert [int(number) for number, _ in lines] == [pytest.approx(number, rel=0.05) for number in cycles]
    assert lines[1] == lines[4]
    done = subprocess.run([example, "1", "8"], cwd=tmp_path, capture_output=True, text=True)
    assert (done.returncode, done.stdout.count("\n")) == (1, 1)
    assert done.stderr.startswith("setting the streams' length: no such slot, input or output")
