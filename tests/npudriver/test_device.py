"""The driver on simulated devices: the same tests on the Verilog and on the instruction-level simulator."""

import dataclasses
from collections.abc import Iterator

import numpy as np
import pytest

from cores.config import NpuConfig
from cores.device import driver_machine
from npudriver import (
    AbortedError,
    Backend,
    Device,
    DeviceError,
    DriverError,
    FaultError,
    OutOfMemoryError,
    PackageError,
    WaitTimeoutError,
)
from sim.devices import FunctionalBackend, RtlBackend
from sim.rtl import Bus, BusFault, RtlMachine
from tests.errors import raises

from .simulated import SIMULATORS, simulated
from .small import CONFIG, cycles, expected, machine_of_json, program, samples


@pytest.fixture(scope="module")
def simulation() -> Iterator[RtlMachine]:
    with RtlMachine(CONFIG) as machine:
        yield machine


@pytest.fixture(params=SIMULATORS)
def backend(request: pytest.FixtureRequest) -> Backend:
    return simulated(request, CONFIG, Bus())


@pytest.fixture
def device(backend: Backend) -> Iterator[Device]:
    with Device(backend, machine_of_json()) as device:
        yield device


def check(found: dict[str, np.ndarray], inputs: dict[str, np.ndarray], seed: int = 0) -> None:
    (value,) = found.values()
    np.testing.assert_array_equal(value, expected(inputs, seed))


def test_run(device, rng):
    loaded = device.load(program())
    for inputs in samples(rng, 3):
        check(loaded.run(inputs), inputs)


@pytest.mark.parametrize("slots", [1, 2, 3])
@pytest.mark.parametrize("interrupt", [False, True])
def test_stream_keeps_the_order(backend, rng, slots, interrupt):
    wanted = samples(rng, 7)
    with Device(backend, machine_of_json(), interrupt=interrupt) as device:
        found = list(device.load(program(), slots=slots).stream(iter(wanted)))
    assert len(found) == len(wanted)
    for one, inputs in zip(found, wanted, strict=True):
        check(one, inputs)


def test_inputs_are_loaded_while_one_runs(device, rng):
    """Two are submitted before the first is waited for, and a third as soon as that has ended."""
    loaded, wanted = device.load(program(), slots=2), samples(rng, 3)
    first, second = loaded.submit(wanted[0]), loaded.submit(wanted[1])
    assert not (first.ended or second.ended)
    third = loaded.submit(wanted[2])     # in the first's slot, whose result is kept
    assert first.ended
    for inference, inputs in zip((first, second, third), wanted, strict=True):
        check(inference.result(), inputs)
        check(inference.result(), inputs)    # once more is no error


def test_several_programs_are_resident(device, rng):
    """The second's inferences run between the first's; one is unloaded, the other goes on."""
    first, second = device.load(program(0)), device.load(program(1))
    wanted = samples(rng, 4)
    jobs = [(loaded.submit(inputs), inputs, seed) for inputs in wanted for seed, loaded in enumerate((first, second))]
    for inference, inputs, seed in jobs:
        check(inference.result(), inputs, seed)
    last = first.submit(wanted[3])
    last.wait()
    first.unload()
    first.unload()
    check(last.result(), wanted[3])
    with raises(DriverError, "slot-lost"):
        last.region()
    check(second.run(wanted[0]), wanted[0], 1)
    with raises(DeviceError, "slot-lost"):
        first.run(wanted[0])


def test_memory_is_given_back(device):
    before = backend_free(device)
    with device.load(program()), device.load(program(1), slots=4):
        assert backend_free(device) < before
    assert backend_free(device) == before


def backend_free(device: Device) -> int:
    return device.backend.memory._arena.free_bytes


def test_no_room(device):
    huge = dataclasses.replace(program(), data_beats=1 << 27)
    before = backend_free(device)
    with raises(OutOfMemoryError, "device-memory"):
        device.load(huge)
    assert backend_free(device) == before


def test_counters(backend, rng):
    with Device(backend, machine_of_json(), profile=True) as device:
        loaded = device.load(program())
        inference = loaded.submit(samples(rng, 1)[0])
        inference.wait()
    assert inference.cycles == inference.counters["cycles"] == pytest.approx(cycles(), rel=0.05)
    assert inference.counters["instructions"] == len(program().code) // 16
    assert inference.counters["write_beats"] > 0


def test_the_region_can_be_read(device, rng):
    loaded, (inputs,) = device.load(program()), samples(rng, 1)
    region = loaded.submit(inputs).region()
    assert region[:len(program().constants)].tobytes() == program().constants
    port, beat = program().outputs[0], CONFIG.beat_bytes
    found = port.decode(region[port.offset * beat:(port.offset + port.beats(beat)) * beat], beat)
    np.testing.assert_array_equal(found, expected(inputs))


def test_a_wait_can_take_too_long(device, rng):
    loaded, (inputs, other) = device.load(program()), samples(rng, 2)
    inference, behind = loaded.submit(inputs), loaded.submit(other)
    with raises(WaitTimeoutError, "timeout"):
        inference.result(timeout=0)
    check(behind.result(), other)
    check(inference.result(), inputs)


def test_abort(device, rng):
    """Of what runs, of what waits, and of what has ended; what is left goes on."""
    loaded, wanted = device.load(program(), slots=4), samples(rng, 4)
    running, waiting, last, done = (loaded.submit(inputs) for inputs in wanted)
    running.abort()
    last.abort()
    check(waiting.result(), wanted[1])
    check(done.result(), wanted[3])
    done.abort()
    check(done.result(), wanted[3])
    for inference in (running, last):
        with pytest.raises(AbortedError):
            inference.result()
    check(loaded.run(wanted[0]), wanted[0])


def test_reset(device, rng):
    """What runs is lost, what waits is not, and programs stay."""
    loaded, wanted = device.load(program(), slots=3), samples(rng, 3)
    running, second, third = (loaded.submit(inputs) for inputs in wanted)
    device.reset()
    with raises(AbortedError, "aborted"):
        running.result()
    check(second.result(), wanted[1])
    check(third.result(), wanted[2])
    check(loaded.run(wanted[0]), wanted[0])


def test_errors_have_a_cause_and_a_place(device, rng):
    """A damaged instruction: its index and its layer; the next program runs."""
    code = bytearray(program().code)
    index = next(number for number, (layer, _) in enumerate(program().instruction_layers) if layer >= 0)
    first = sum(count for _, count in program().instruction_layers[:index])
    code[16 * first] = 0    # no such opcode
    damaged = device.load(dataclasses.replace(program(), code=bytes(code)))
    (inputs,) = samples(rng, 1)
    with pytest.raises(FaultError, match=f"ILLEGAL at instruction {first}, no known operation of layer .*: unknown "
                                         "opcode") as caught:
        damaged.run(inputs)
    assert (caught.value.name, caught.value.number, caught.value.index) == ("ILLEGAL", 1, first)
    check(device.load(program()).run(inputs), inputs)


def test_bus_errors(simulation, rng):
    """The instruction that read is named; without retries the error is raised, with one the sample is not lost."""
    simulation.set_bus(Bus())
    with Device(RtlBackend(CONFIG, machine=simulation), machine_of_json()) as device:
        loaded, (inputs,) = device.load(program()), samples(rng, 1)
        for write, name in ((False, "READ_SLVERR"), (True, "WRITE_SLVERR")):
            for retries in (0, 1):
                simulation.begin()
                simulation.set_faults(BusFault(write=write, burst=2))
                if retries:
                    check(loaded.run(inputs, retries=retries), inputs)
                    continue
                with pytest.raises(FaultError, match=rf"{name} at instruction \d+, \w+.*: the memory answered a "):
                    loaded.run(inputs)
        simulation.set_faults()


def test_a_bus_that_does_not_answer(simulation, rng):
    """The machine gives up; the driver waits until the bus has answered, or resets."""
    with Device(RtlBackend(CONFIG, machine=simulation), machine_of_json(), progress_cycles=500) as device:
        loaded, (inputs,) = device.load(program()), samples(rng, 1)
        simulation.set_bus(Bus(latency=20_000))
        with pytest.raises(FaultError, match="TIMEOUT at instruction .* a silent bus"):
            loaded.run(inputs)
        simulation.set_bus(Bus())
        check(loaded.run(inputs), inputs)


def test_another_device(backend):
    other = driver_machine(NpuConfig.preset(32))
    with raises(DeviceError, "other-device", register="config"):
        Device(backend, other)


def test_another_machines_program(device):
    with raises(PackageError, "other-machine"):
        device.load(dataclasses.replace(program(), digest=1))


@pytest.mark.parametrize("inputs, message", [
    ({}, "input 'x' is missing"),
    ({"x": np.zeros((4, 6, 6), np.uint8), "y": 0}, "there is no input 'y'"),
    ({"x": np.zeros((4, 6, 6), np.int8)}, "input x must be uint8, not int8"),
    ({"x": np.zeros((1, 4, 6, 6), np.uint8)}, "must be one sample of 4 x 6 x 6, not 1 x 4 x 6 x 6"),
])
def test_inputs_that_do_not_fit(device, inputs, message):
    with pytest.raises(PackageError, match=message):
        device.load(program()).submit(inputs)


def test_a_stream_that_is_left_leaves_nothing_behind(device, rng):
    loaded, wanted = device.load(program(), slots=3), samples(rng, 6)
    stream = loaded.stream(wanted)
    check(next(stream), wanted[0])
    stream.close()
    assert not device.busy
    check(loaded.run(wanted[1]), wanted[1])


def test_whoever_had_it_before_is_stopped(backend, rng):
    """A process that ended in mid-inference leaves the device busy."""
    first = Device(backend, machine_of_json())
    first.load(program()).submit(samples(rng, 1)[0])
    with Device(backend, machine_of_json()) as device:
        (inputs,) = samples(rng, 1)
        check(device.load(program()).run(inputs), inputs)


def test_every_error_is_the_drivers():
    assert all(issubclass(kind, DriverError) for kind in (
        AbortedError, DeviceError, FaultError, OutOfMemoryError, PackageError, WaitTimeoutError))


class Stubborn(FunctionalBackend):
    """A machine that is busy for ever once it is told to stop, until it is reset, if it can be."""

    stuck, resettable, resets = False, True, 0

    def read32(self, address: int) -> int:
        status = machine_of_json().registers["status"]
        return machine_of_json().status["BUSY"] if self.stuck and address == status else super().read32(address)

    def write32(self, address: int, value: int) -> None:
        if address == machine_of_json().registers["control"] and value == machine_of_json().control["ABORT"]:
            self.stuck = True
        super().write32(address, value)

    def reset(self) -> bool:
        self.resets += 1
        if self.resettable:
            self.stuck = False
            super().reset()
        return self.resettable


@pytest.mark.slow
def test_memory_is_kept_while_the_device_does_not_stop(rng):
    """And given back after a reset."""
    with Device(Stubborn(CONFIG), machine_of_json()) as device:
        before, loaded = backend_free(device), device.load(program())
        loaded.submit(samples(rng, 1)[0])
        with pytest.raises(DeviceError, match="the device does not stop, as its bus owes answers: reset it"):
            loaded.unload()
        assert backend_free(device) < before
        with pytest.raises(DeviceError, match="has been unloaded"):
            loaded.run(samples(rng, 1)[0])
        device.reset()
        loaded.unload()
        assert backend_free(device) == before


@pytest.mark.slow
@pytest.mark.parametrize("resettable", [True, False])
def test_closing_resets_what_does_not_stop(rng, resettable):
    """Its memory goes with the back end."""
    backend = Stubborn(CONFIG)
    backend.resettable = resettable
    with Device(backend, machine_of_json()) as device:
        device.load(program()).submit(samples(rng, 1)[0])
    assert backend.resets == 1


def test_interrupted_while_it_is_started(rng, monkeypatch):
    """Ctrl-C once START is written: the machine is stopped before its memory goes."""
    backend = FunctionalBackend(CONFIG)
    with pytest.raises(KeyboardInterrupt), Device(backend, machine_of_json()) as device:
        loaded, command = device.load(program()), device.registers.command

        def interrupted(name: str) -> None:
            command(name)
            if name == "START":
                raise KeyboardInterrupt

        monkeypatch.setattr(device.registers, "command", interrupted)
        loaded.submit(samples(rng, 1)[0])
    assert not backend.read32(machine_of_json().registers["status"]) & machine_of_json().status["BUSY"]
