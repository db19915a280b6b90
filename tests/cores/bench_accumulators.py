"""Accumulators against a model: words begun and added to, at any distance, the store engine's reads, carries."""

import random
from collections import defaultdict

import cocotb
import numpy as np
from cocotb.triggers import FallingEdge, RisingEdge

from cores.buffers.accumulators import Accumulators
from cores.config import NpuConfig
from tests.bench import bench_parameters
from tests.cores.bus_models import start
from tests.cores.pins import value_of
from tests.cores.store_values import pack

CONFIG = NpuConfig.from_dict(bench_parameters()["config"])
TM, LANES, WIDTH, BITS = CONFIG.oc_lanes, CONFIG.acc_lanes, CONFIG.acc_width, CONFIG.sum_bits
SPLIT = Accumulators.split(CONFIG)
#: Lanes of each group that has an address of its own.
GROUPS = ([np.arange(LANES) % TM // CONFIG.ic_lanes == group for group in range(2)] if SPLIT
          else [np.ones(LANES, bool)])


class Bench:
    """A word for each group a cycle, and a read of the store engine; compares every read."""

    def __init__(self, dut, rng: np.random.Generator):
        self.dut, self.rng = dut, rng
        self.words: dict[tuple[int, int], np.ndarray] = {}
        #: By cycle: what the sums then are added to.
        self.due: dict[int, tuple[np.ndarray, np.ndarray]] = {}
        #: By cycle: what can be read from then on: (group, bank, word, values).
        self.written: dict[int, list] = defaultdict(list)
        #: Of each group, the cycle in which a word was last used.
        self.used: list[dict[tuple[int, int], int]] = [{} for _ in GROUPS]
        self.totals: dict[tuple[int, int], np.ndarray] = defaultdict(lambda: np.zeros(LANES, np.int64))
        self.known: dict[tuple[int, int], np.ndarray] = defaultdict(lambda: np.zeros(LANES, bool))
        self.cycle = 0
        #: What the read of the cycle before brings, and which lanes of it are known.
        self.expected: tuple[np.ndarray, np.ndarray] | None = None

    def _sums(self) -> tuple[np.ndarray, np.ndarray]:
        """Sums and carries of a word; extremes among them."""
        limit = 1 << BITS - 1
        sums = self.rng.integers(-limit, limit, LANES)
        if self.rng.integers(4) == 0:
            sums = self.rng.choice([-limit, limit - 1, -1, 0], LANES)
        return sums, self.rng.integers(0, 2, TM)

    async def step(self, addresses: list[tuple[int, int] | None], *, first: bool, read: tuple[int, int] | None) -> None:
        """``addresses``: (bank, word) of each group, of one bank; None for a group that has none."""
        dut = self.dut
        bank = next((address[0] for address in addresses if address), random.getrandbits(1))
        words = [address[1] if address else random.randrange(CONFIG.acc_depth) for address in addresses]
        dut.bank.value, dut.first.value = bank, int(first)
        dut.enable.value, dut.address.value = int(addresses[0] is not None), words[0]
        if SPLIT:
            dut.upper_enable.value, dut.upper_address.value = int(addresses[1] is not None), words[1]
        sums, carries = self._sums()
        self.due[self.cycle + Accumulators.READ_AHEAD] = sums, carries
        added = sums + np.concatenate([np.zeros(TM, np.int64), carries])[:LANES] if LANES > TM else sums
        for group, address in enumerate(addresses):
            if address is None:
                continue
            lanes = GROUPS[group]
            self.used[group][address] = self.cycle
            total = np.where(first, 0, self.totals[address]) + added
            self.totals[address] = np.where(lanes, total, self.totals[address])
            # Wraps as the hardware's, which no proven program makes it do.
            half = 1 << WIDTH - 1
            self.totals[address] = (self.totals[address] + half) % (1 << WIDTH) - half
            self.written[self.cycle + Accumulators.LATENCY].append((group, address, self.totals[address].copy()))
        now, carry = self.due.pop(self.cycle, (self.rng.integers(-5, 5, LANES), self.rng.integers(0, 2, TM)))
        dut.sums.value, dut.carries.value = pack(now, BITS), pack(carry, 1)
        for group, address, values in self.written.pop(self.cycle, []):
            lanes = GROUPS[group]
            self.words[address] = np.where(lanes, values, self.words.get(address, np.zeros(LANES, np.int64)))
            self.known[address] |= lanes
        dut.read_enable.value = int(read is not None)
        nowhere = random.getrandbits(1), random.randrange(CONFIG.acc_depth)
        dut.read_bank.value, dut.read_address.value = read or nowhere
        await FallingEdge(dut.clk)
        if self.expected is not None:
            values, known = self.expected
            word = value_of(dut.read_data)
            found = np.array([word >> lane * WIDTH & (1 << WIDTH) - 1 for lane in range(LANES)])
            found -= found >> WIDTH - 1 << WIDTH
            assert (found == values)[known].all(), f"cycle {self.cycle}: {found}, not {values}"
        if read is not None:
            self.expected = self.words.get(read, np.zeros(LANES, np.int64)).copy(), self.known[read].copy()
        await RisingEdge(dut.clk)
        self.cycle += 1


async def begin(dut) -> Bench:
    await start(dut, enable=0, first=0, bank=0, address=0, sums=0, carries=0, read_enable=0, read_bank=0,
                read_address=0, **({"upper_enable": 0, "upper_address": 0} if SPLIT else {}))
    return Bench(dut, np.random.default_rng(random.getrandbits(32)))


async def words(bench: Bench, *, cycles: int, few: int) -> None:
    """Random words among ``few`` of each bank, as soon as they may be used again."""
    places = [(bank, word) for bank in range(2)
              for word in [0, CONFIG.acc_depth - 1, *random.sample(range(1, CONFIG.acc_depth - 1), few - 2)]]
    for _ in range(cycles):
        addresses: list[tuple[int, int] | None] = []
        bank, first = random.getrandbits(1), random.random() < 0.2
        for group in range(len(GROUPS)):
            free = [place for place in places if place[0] == bank
                    and bench.cycle - bench.used[group].get(place, -9) >= Accumulators.HAZARD
                    and (first or bench.known[place][GROUPS[group]].all() or bench.used[group].get(place) is not None)]
            addresses.append(random.choice(free) if free and random.random() < 0.8 else None)
        await bench.step(addresses, first=first, read=random.choice(places) if random.random() < 0.6 else None)
    for place in places:
        for _ in range(Accumulators.LATENCY):
            await bench.step([None] * len(GROUPS), first=False, read=None)
        await bench.step([None] * len(GROUPS), first=False, read=place)
    await bench.step([None] * len(GROUPS), first=False, read=None)


@cocotb.test(timeout_time=1, timeout_unit="ms")
@cocotb.parametrize(few=[2, 12])
async def random_words(dut, few):
    """Few words: each is used again as early as may be; more: both banks are full of different sums."""
    await words(await begin(dut), cycles=500, few=few)


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def reset_in_mid_stream(dut):
    """Nothing is written for what was under way; the words stay."""
    bench = await begin(dut)
    await words(bench, cycles=60, few=3)
    place = 1, CONFIG.acc_depth - 1
    await bench.step([place] * len(GROUPS), first=True, read=None)
    for _ in range(Accumulators.LATENCY):
        await bench.step([None] * len(GROUPS), first=False, read=None)
    kept = bench.words[place].copy()
    await bench.step([place] * len(GROUPS), first=True, read=None)
    following = await begin(dut)
    following.words[place] = kept
    following.known[place][:] = True
    for _ in range(Accumulators.LATENCY):
        await following.step([None] * len(GROUPS), first=False, read=None)
    await following.step([None] * len(GROUPS), first=False, read=place)
    await following.step([None] * len(GROUPS), first=False, read=None)
    following.known.clear()
    following.words.clear()
    await words(following, cycles=60, few=3)
