"""Long streams in which things go wrong: every inference is recovered, none is lost, and each result is its sample's.

The faults: errors of the bus, a machine that gives up, one that would never end, an interrupt that gets lost, a bus
that never answers again, resets from elsewhere.
"""

import random
from collections import Counter, deque
from collections.abc import Iterator

import numpy as np
import pytest

from npudriver import Device, ResidentProgram
from sim.devices import FunctionalBackend, InjectedFault, RtlBackend
from sim.rtl import Bus, BusFault, RtlMachine

from .small import CONFIG, expected, machine_of_json, program, samples

#: Different samples, whose results are known; streams take them in a random order.
_KNOWN = 8
#: Seconds, of the device's time, that an inference may take; it takes 9 microseconds.
_TIMEOUT = 0.02
_RETRIES = 20


class Stream:
    """Samples at random, and a check of what comes out."""

    def __init__(self, rng: np.random.Generator, count: int) -> None:
        self._samples = samples(rng, _KNOWN)
        self._expected = [expected(inputs) for inputs in self._samples]
        assert len({value.tobytes() for value in self._expected}) == _KNOWN
        self._order = rng.integers(0, _KNOWN, count).tolist()
        self.submitted = 0

    def __iter__(self) -> Iterator[dict[str, np.ndarray]]:
        for number in self._order:
            self.submitted += 1
            yield self._samples[number]

    def check(self, loaded: ResidentProgram, device: Device, resets: set[int]) -> None:
        found = 0
        for outputs in loaded.stream(self, retries=_RETRIES):
            np.testing.assert_array_equal(next(iter(outputs.values())), self._expected[self._order[found]],
                                          err_msg=f"inference {found}")
            found += 1
            if found in resets:
                device.reset()
        assert found == self.submitted == len(self._order)


class RandomFaults(deque[InjectedFault]):
    """One in ``every`` at random, without end; those that have happened are counted."""

    def __init__(self, chance: random.Random, every: int) -> None:
        super().__init__([InjectedFault.NONE])
        self._chance, self._every = chance, every
        self.happened: Counter[InjectedFault] = Counter()

    def popleft(self) -> InjectedFault:
        fault = InjectedFault.NONE
        if self._chance.randrange(self._every) == 0:
            fault = self._chance.choice([kind for kind in InjectedFault if kind is not InjectedFault.NONE])
        self.happened[fault] += 1
        return fault


def survive(seed: int, rng: np.random.Generator, count: int) -> Counter[InjectedFault]:
    """A stream on the instruction-level simulator. Returns how often each fault has happened."""
    chance = random.Random(seed)
    backend = FunctionalBackend(CONFIG)
    faults = backend.faults = RandomFaults(chance, every=10)
    resets = set(chance.sample(range(1, count), max(1, count // 100)))
    with Device(backend, machine_of_json(), timeout=_TIMEOUT) as device:
        before = backend.memory._arena.free_bytes
        with device.load(program(), slots=chance.randint(1, 3)) as loaded:
            Stream(rng, count).check(loaded, device, resets)
        assert backend.memory._arena.free_bytes == before
    harmless = faults.happened[InjectedFault.NONE] + faults.happened[InjectedFault.LOST_INTERRUPT]
    assert backend.starts == faults.happened.total()
    assert count <= harmless <= count + 2 * len(resets), "what went well was not done again, but for resets"
    return faults.happened


@pytest.mark.slow
def test_on_the_instruction_level_simulator(seed, rng):
    happened = survive(seed, rng, 300)
    assert all(happened[kind] for kind in InjectedFault)


@pytest.mark.full
def test_ten_thousand_inferences(seed, rng):
    happened = survive(seed, rng, 10_000)
    assert min(happened[kind] for kind in InjectedFault) > 50


class TroubledRtl(RtlBackend):
    """The Verilog on a bus that errs once, or is silent for a while, before one in ``every`` programs."""

    def __init__(self, machine: RtlMachine, chance: random.Random, every: int) -> None:
        super().__init__(CONFIG, machine=machine)
        self._chance, self._every = chance, every
        self.happened: Counter[str] = Counter()
        self._start = machine_of_json().registers["control"]

    def write32(self, address: int, value: int) -> None:
        if address == self._start and value & machine_of_json().control["START"]:
            self._trouble()
        super().write32(address, value)

    def _trouble(self) -> None:
        kind = "none"
        if self._chance.randrange(self._every) == 0:
            kind = self._chance.choice(["read", "write", "silence", "stall"])
        self.happened[kind] += 1
        self.simulation.begin()
        self.simulation.set_faults(*(
            [BusFault(write=kind == "write", burst=self._chance.randrange(4))] if kind in ("read", "write") else []))
        # Longer than the machine waits, or than the driver does.
        latency = {"silence": 3_000, "stall": 100_000}.get(kind)
        self.simulation.set_bus(Bus() if latency is None else Bus(latency=latency))


def survive_on_rtl(seed: int, rng: np.random.Generator, count: int) -> Counter[str]:
    chance = random.Random(seed)
    with RtlMachine(CONFIG, seed=seed) as machine:
        backend = TroubledRtl(machine, chance, every=4)
        resets = set(chance.sample(range(1, count), max(1, count // 20)))
        with Device(backend, machine_of_json(), timeout=1e-3, progress_cycles=1_000) as device:
            Stream(rng, count).check(device.load(program()), device, resets)
        assert machine.stats.stray_writes == 0
    assert backend.happened.total() >= count
    return backend.happened


def test_on_the_verilog(seed, rng):
    happened = survive_on_rtl(seed, rng, 20)
    assert happened["none"] < happened.total()


@pytest.mark.full
def test_a_hundred_inferences_on_the_verilog(seed, rng):
    happened = survive_on_rtl(seed, rng, 100)
    assert all(happened[kind] for kind in ("none", "read", "write", "silence", "stall"))
