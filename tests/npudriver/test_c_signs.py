"""Outputs that lie in memory as packed bits: C unpacks them as Python does."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from cores.config import NpuConfig
from cores.device import driver_machine
from gen.deploy.c_model import c_model
from gen.program.file import ProgramFile
from gen.program.program import Program
from gen.run.workload import open_workload
from npudriver import Device
from npudriver.program import Port
from sim.devices import FunctionalBackend
from tests.c_targets import TARGETS, build, require
from tests.gen.test_onnx_binary import Signs, first_signs
from tests.piped_device import run_piped

CONFIG = NpuConfig.preset(16, gather=1, binary_rows=1)


def program_of(channels: int, size: int, folder: Path, rng: np.random.Generator) -> Program:
    """Signs that a layer makes and the next one reads, as bits. They are an output, too: the compiler gives bits to no
    other reader, but a program may say so.
    """
    b = Signs(rng)
    y = b.node("Conv", first_signs(b, channels, size), b.sign_weights("float", 24, channels, 3, 3))
    b.output(y, np.float32)
    program = open_workload(b.save(folder), CONFIG).program
    (name,) = (name for name, place in program.tensors.items() if place.signs)
    place = program.tensors[name]
    port = Port(name="signs", dtype="int8", shape=list(place.shape), tensor=name, map_shape=list(place.shape),
                offset=place.offset, interleaved=False, signs=True, steps=[])
    assert [place.shape[0], place.shape[1]] == [channels, size - 2]
    return replace(program, output_ports=(*program.output_ports, port))


@pytest.mark.parametrize("target", ["gcc-sanitized", "armv7"])
@pytest.mark.parametrize(("channels", "size"), [(16, 10), (9, 11), (40, 19)])
def test_unpacked_as_in_python(channels: int, size: int, target: str, rng: np.random.Generator, tmp_path: Path) -> None:
    """Rows that end within a beat, and channels that end within a block."""
    require(TARGETS[target])
    program = program_of(channels, size, tmp_path, rng)
    model = c_model(ProgramFile.of(program))
    folder = tmp_path / "c"
    folder.mkdir()
    for name, content in model.files.items():
        (folder / name).write_bytes(content)
    x = rng.integers(-128, 128, (3, size, size)).astype(np.int8)
    with Device(FunctionalBackend(CONFIG), driver_machine(CONFIG)) as device:
        expected = device.load(program.deployed).run({"x": x})
    assert set(np.unique(expected["signs"])) == {-1, 1}
    answers = run_piped(build(folder, TARGETS[target]), CONFIG, [[x.tobytes()]] * 2,
                        [np.dtype(port.dtype).itemsize for port in model.outputs])
    for outputs in answers.outputs:
        for number, port in enumerate(model.outputs):
            assert outputs[number][1] == expected[port.name].tobytes()
