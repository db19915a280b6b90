"""The Verilog runner on a stub with the NPU's ports: memory model, driver, trace, protocol checks."""

import re
from pathlib import Path

import numpy as np
import pytest

from cores.arch.axi import AxiResponse
from cores.arch.error_codes import ErrorCode
from cores.arch.registers import VERSION
from cores.config import NpuConfig
from sim.errors import MachineError
from sim.rtl import Bus, BusFault, Driver, DriverError, ProtocolError, RtlMachine, run_program
from sim.rtl.machine import WriteOrder
from sim.timing.dram import data_base
from sim.toolchain import ToolError
from tests.errors import raises

CONFIG = NpuConfig.preset(16)
TEXT = (Path(__file__).parent / "stub_npu.v").read_text()
BUGS = {name: int(number) for name, number in re.findall(r"`define BUG_(\w+) (\d+)", TEXT)}
BEATS = 160
CODE = bytes(4 * 16)


def stub(config=CONFIG):
    lanes = config.oc_lanes | config.ic_lanes << 8 | config.nnz_lanes << 16 | config.pixel_lanes << 24
    defines = {
        "BEAT_BYTES": config.beat_bytes, "ADDRESS_BITS": config.address_width,
        "DIGEST": f"32'd{config.digest}", "LANES": lanes, "VERSION": VERSION,
    }
    return "".join(f"`define {name} {value}\n" for name, value in defines.items()) + TEXT


@pytest.fixture
def image(rng):
    return rng.integers(0, 256, 2 * BEATS * CONFIG.beat_bytes, np.uint8)


@pytest.fixture
def machine(seed):
    with RtlMachine(CONFIG, verilog=stub(), seed=seed) as machine:
        yield machine


def copy(machine, image, *, faults=(), **options):
    machine.set_faults(*faults)
    return run_program(machine, CODE, image, write_start=BEATS, **{"timeout": 0, **options})


def expected(image):
    half = image.size // 2
    return np.concatenate([image[:half], image[:half]])


@pytest.mark.parametrize("macs", [16, 64])
def test_copies(macs, rng):
    config = NpuConfig.preset(macs)
    image = rng.integers(0, 256, 2 * BEATS * config.beat_bytes, np.uint8)
    before = image.copy()
    with RtlMachine(config, verilog=stub(config)) as machine:
        result = run_program(machine, CODE, image, write_start=BEATS, timeout=0)
    assert np.array_equal(result.image, expected(image))
    assert np.array_equal(image, before), "the caller's image was changed"
    assert result.counters["read_beats"] == result.stats.read_beats == BEATS
    assert result.counters["write_beats"] == result.stats.write_beats == BEATS
    assert result.stats.read_bursts == result.stats.write_bursts == BEATS // 16


@pytest.mark.parametrize("order", WriteOrder)
@pytest.mark.parametrize("stall", [0.0, 0.3, 0.8])
def test_bus_behaviour_does_not_change_the_result(machine, image, order, stall):
    machine.set_bus(Bus(latency=7, bandwidth=0.4, stall_probability=stall, write_order=order))
    for _ in range(2):  # a machine can be used again
        assert np.array_equal(copy(machine, image).image, expected(image))


def test_latency_and_bandwidth_set_the_time(machine, image):
    def cycles(**bus):
        machine.set_bus(Bus(**bus))
        result = copy(machine, image)
        assert abs(result.cycles - result.counters["cycles"]) <= 3
        return result.cycles
    bursts = BEATS // 16
    base = cycles(latency=10)
    assert base == cycles(latency=10)
    assert cycles(latency=30) - base == 2 * 20 * bursts
    assert cycles(latency=10, bandwidth=0.5) - base == pytest.approx(2 * 15 * bursts, abs=2 * bursts)


def test_seed_repeats_stalls(image):
    def cycles(seed):
        with RtlMachine(CONFIG, verilog=stub(), seed=seed, bus=Bus(stall_probability=0.5)) as machine:
            return copy(machine, image).cycles
    assert cycles(1) == cycles(1)
    assert len({cycles(seed) for seed in range(4)}) > 1


def test_trace_adds_up(machine, image):
    result = copy(machine, image)
    counts = result.trace.counts
    assert counts.shape == (3, 7, 4)
    assert counts[0, 1, 0] == BEATS + 40 * (BEATS // 16) - (BEATS // 16)  # waits for data are inside READ
    assert counts.sum() + 2 == result.cycles
    assert counts[1].sum() == 0 and (result.trace.first[1] == -1).all()
    assert result.trace.first[2, 1] > result.trace.first[0, 0] >= 0
    assert result.trace.last[2, 1] == result.cycles - 1


@pytest.mark.parametrize("write", [False, True])
@pytest.mark.parametrize("response", [AxiResponse.SLVERR, AxiResponse.DECERR])
def test_injected_error_by_burst(machine, image, write, response):
    with pytest.raises(MachineError) as caught:
        copy(machine, image, faults=(BusFault(write=write, response=response, burst=3),))
    assert caught.value.cause is ErrorCode[f"{'WRITE' if write else 'READ'}_{response.name}"]
    assert machine.stats.read_bursts == 4
    assert np.array_equal(copy(machine, image).image, expected(image)), "the fault outlived its run"


def test_injected_error_by_address(machine, image):
    low = data_base(CONFIG) + 40 * CONFIG.beat_bytes
    with pytest.raises(MachineError) as caught:
        copy(machine, image, faults=(BusFault(low=low, high=low + 1),))
    assert caught.value.cause is ErrorCode.READ_SLVERR
    assert machine.stats.read_bursts == 3


@pytest.mark.parametrize("bug, message", [
    ("CROSSING", "AR burst crosses 4 KiB"),
    ("UNSTABLE_READ", "AR changed while it was waiting"),
    ("EARLY_LAST", "WLAST comes early"),
    ("NO_LAST", "WLAST is missing"),
    ("UNSTABLE_WRITE", "W changed while it was waiting"),
    ("SIZE", "AR size is not the width of the bus"),
    ("UNFINISHED", "bursts under way"),
    ("ENDLESS", "not done after 300000 cycles"),
    ("TRACE", "trace port out of range: engine 0, state 6, instruction 1000"),
])
def test_broken_rules_are_found(machine, image, bug, message):
    machine.set_bus(Bus(stall_probability=0.5))
    with pytest.raises(ProtocolError, match=message):
        copy(machine, image, timeout=BUGS[bug], limit=300_000)


def test_stray_writes_are_found(machine, image):
    with raises(ProtocolError, "stray-write"):
        copy(machine, image[:-CONFIG.beat_bytes])
    for bug in ("STRAY", "OVERWRITE"):
        with raises(ProtocolError, "stray-write"):
            copy(machine, image, timeout=BUGS[bug])


def test_driver_refuses_another_device(machine):
    with raises(DriverError, "other-device", register="config"):
        Driver(machine, NpuConfig.preset(32))

    class Dead:
        def read32(self, address):
            return 0

    with raises(DriverError, "other-device", register="id"):
        Driver(Dead(), CONFIG)


@pytest.mark.parametrize("values, message", [
    ({"latency": 0}, "latency must be in 1..100000 cycles, not 0"),
    ({"bandwidth": 0.0}, "bandwidth must be above 0 and at most 1 beat a cycle, not 0.0"),
    ({"stall_probability": 1.0}, "stall_probability must be in 0..0.99, not 1.0"),
])
def test_bus_parameters(values, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        Bus(**values)


def test_image_must_be_whole_beats(machine):
    with pytest.raises(ValueError, match="whole beats of 8 bytes, not 9 bytes"):
        run_program(machine, CODE, np.zeros(9, np.uint8), write_start=0)


def test_folders_that_make_cannot_take(monkeypatch, tmp_path):
    monkeypatch.setenv("NPUGEN_BUILD", str(tmp_path / "my builds"))
    with pytest.raises(ToolError, match="my builds/rtl: make cannot build .* spaces in its path; set NPUGEN_BUILD"):
        RtlMachine(CONFIG, verilog=stub())
    assert not (tmp_path / "my builds").exists()
