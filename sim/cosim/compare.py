"""A program on the Verilog and on the functional simulator, what they write compared."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from cores.arch.instruction import decode
from cores.arch.isa import INSTRUCTION_BYTES
from cores.config import NpuConfig

from ..functional import execute
from ..rtl.events import Events
from ..rtl.machine import RtlMachine
from ..rtl.run import RtlResult, data_base, run_program
from .recorder import Handover, RecordingMachine, Writes

__all__ = ["Difference", "compare_program"]


@dataclass(frozen=True, order=True)
class Difference:
    """The first value that the Verilog has otherwise, of those that an instruction writes into a component."""

    index: int
    component: str
    text: str

    def __str__(self) -> str:
        return f"instruction {self.index}, {self.component}: {self.text}"


def compare_program(machine: RtlMachine, code: bytes, image: np.ndarray, *, write_start: int,
                    stream_shift: int = 0) -> tuple[RtlResult, list[Difference]]:
    """Run ``code`` over ``image`` (uint8, whole beats) on both; what the Verilog did, and the differences.

    ``machine``: one that is ``observed``. Differences are in the program's order, one for each instruction and
    component: the first is the cause, as an instruction takes only what earlier ones have made.

    Raises HazardError for a program whose result is left to chance, else what `run_program` raises.
    """
    config = machine.config
    expected = RecordingMachine(config, code, np.ascontiguousarray(image, np.uint8).copy(), write_start=write_start,
                                stream_shift=stream_shift)
    execute(expected, "load")
    result = run_program(machine, code, image, write_start=write_start, stream_shift=stream_shift)
    found = [*_differences(config, expected, machine.events), *_memory(expected, result)]
    firsts: dict[tuple[int, str], Difference] = {}
    for difference in sorted(found):
        opcode = decode(code[difference.index * INSTRUCTION_BYTES:][:INSTRUCTION_BYTES]).opcode.name
        firsts.setdefault((difference.index, difference.component), Difference(
            difference.index, difference.component, f"{opcode}: {difference.text}"))
    return result, list(firsts.values())


def _differences(config: NpuConfig, expected: RecordingMachine, events: Events) -> Iterator[Difference]:
    lanes, size = config.ic_lanes, config.beat_bytes
    yield from _compare("input buffer", expected.entries, events.entries(config), lanes, "entry", config.input_depth)
    if config.binary_rows:
        yield from _compare("flags of zeros", expected.flags, events.flags(config), 2, "entry", config.input_depth)
    for ring in ("weight", "side"):
        yield from _compare(f"{ring} ring", expected.streams[ring], events.stream(ring, size, signed=False), size,
                            "beat")
    yield from _compare("pool unit", expected.streams["pool"], events.stream("pool", lanes, signed=True), lanes,
                        "pixel")
    yield from _compare_sums(config, expected.handovers, events)
    yield from _compare("memory", expected.beats, events.beats(config, data_base(config)), size, "beat")


def _memory(expected: RecordingMachine, result: RtlResult) -> Iterator[Difference]:
    """What memory holds at the end, should the bus have lost what was handed to it."""
    wrong = np.flatnonzero(expected.memory.view(np.uint8).ravel() != result.image)
    if len(wrong):
        places, _, indices = expected.beats.arrays()
        writers = indices[places == wrong[0]]
        index = int(writers[-1]) if len(writers) else 0
        yield Difference(index, "memory at the end", f"byte {wrong[0]:,} is {result.image[wrong[0]]}")


def _ranks(places: np.ndarray) -> np.ndarray:
    """For each write how many there were to its place before."""
    order = np.argsort(places, kind="stable")
    of_place = places[order]
    starts = np.flatnonzero(np.diff(of_place, prepend=-1))
    ranks = np.empty(len(places), np.int64)
    ranks[order] = np.arange(len(places)) - np.repeat(starts, np.diff(np.append(starts, len(places))))
    return ranks


def _compare(component: str, expected: Writes, found: tuple[np.ndarray, np.ndarray], lanes: int, unit: str,
             depth: int = 0) -> Iterator[Difference]:
    """The writes to each place are the same, one after the other; in which order places are written is free.

    ``lanes``: places in one ``unit``, which are ``depth`` to a bank.
    """
    places, values, indices = expected.arrays()
    made, got = found
    if len(places) == len(made):        # nearly always all is well
        order, other = np.argsort(places, kind="stable"), np.argsort(made, kind="stable")
        if np.array_equal(places[order], made[other]) and np.array_equal(values[order], got[other]):
            return

    def name(place: int) -> str:
        number, lane = divmod(place, lanes)
        where = f"{unit} {number}" if not depth else f"bank {number // depth}, {unit} {number % depth}"
        return f"{where}, lane {lane}"

    there = dict(zip(zip(made.tolist(), _ranks(made).tolist(), strict=True), got.tolist(), strict=True))
    last = 0
    for place, rank, value, index in zip(places.tolist(), _ranks(places).tolist(), values.tolist(), indices.tolist(),
                                         strict=True):
        last = max(last, index)
        other_value = there.pop((place, rank), None)
        if other_value is None:
            yield Difference(index, component, f"{name(place)} is not written, for {value}")
        elif other_value != value:
            yield Difference(index, component, f"{name(place)} is {other_value}, not {value}")
    for place, _ in there:
        of_place = indices[places == place]
        yield Difference(int(of_place[-1]) if len(of_place) else last, component,
                         f"{name(place)} is written once more, or for no instruction")


def _compare_sums(config: NpuConfig, handovers: list[Handover], events: Events) -> Iterator[Difference]:
    """Sums as each token says that they are done."""
    posts = events.handovers()
    cycles, places, values = events.sums(config, 2 if config.binary_engine else 1)
    held = np.zeros(2 * config.acc_depth * config.acc_lanes, np.int64)
    done = 0
    for number, handover in enumerate(handovers):
        if number == len(posts):
            yield Difference(handover.index, "accumulators", "their token for the store queue never came")
            return
        upto = int(np.searchsorted(cycles, posts[number], "left"))
        held[places[done:upto]] = values[done:upto]     # of several to a place the last stays
        done = upto
        for wrong in np.flatnonzero(held[handover.places] != handover.values)[:1]:
            place = int(handover.places[wrong])
            word, lane = divmod(place, config.acc_lanes)
            bank, word = divmod(word, config.acc_depth)
            yield Difference(int(handover.writers[wrong]), "accumulators",
                             f"bank {bank}, word {word}, lane {lane} is {held[place]}, not {handover.values[wrong]}, "
                             f"when instruction {handover.index} hands them over")
    if len(posts) > len(handovers):
        index = handovers[-1].index if handovers else 0
        yield Difference(index, "accumulators", f"{len(posts) - len(handovers)} more tokens for the store queue")
