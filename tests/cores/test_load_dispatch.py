"""Load dispatch: instructions of the load queue in order, each as soon as it may begin, and what it begins."""

import random

import pytest

from cores.arch.instruction_layout import instruction_layout
from cores.arch.isa import EntryForm, Opcode, Queue
from cores.config import NpuConfig
from cores.load.load_dispatch import LoadDispatch, Setting
from tests.cores.instruction_samples import context_of, extent_of, random_instruction, setting_of
from tests.cores.simulation import Bench, random_bits

CONFIGS = {
    "plain": NpuConfig(oc_lanes=8, ic_lanes=8, nnz_lanes=1),
    "units": NpuConfig(oc_lanes=8, ic_lanes=8, nnz_lanes=1, gather=1, binary_rows=1, winograd=1),
}
LOADS = (Opcode.LOAD_ACT, Opcode.LOAD_WGT, Opcode.LOAD_SIDE)


class DispatchBench(Bench):
    """Ends loads, gives tokens, and knows of every cycle whether an instruction is taken in it, and which.

    ``stall``: how often the walk takes no box.
    """

    def __init__(self, config, *, scarce, **options):
        self.config, self.scarce, self.dispatch = config, scarce, LoadDispatch(config)
        super().__init__(self.dispatch, **options)
        self.begin()

    def begin(self) -> None:
        self.program: list = []                 # (index, instruction) to be taken
        self.width, self.settled = 1, True
        self.geometry = dict.fromkeys(instruction_layout(Opcode.LOAD_SET).members, 0)
        self.load = None                        # at hand
        self.latest: dict[str, int] = {}        # of what was taken last
        self.leaving = self.allowed = False     # the latest load is still at the queue's head; the next may begin
        self.box_begins = False                 # a LOAD_ACT was taken in the cycle before
        self.take_due = 0                       # tokens that leave their counter
        self.walked = None                      # the next load's box, if it has gone to the walk
        self.boxes = 0                          # that have

    def give(self, instructions) -> None:
        self.program = [(random_bits(self.rng, 24), instruction) for instruction in instructions]
        self.to_send["queue"].extend(context_of(index, instruction) for index, instruction in self.program)

    async def surround(self, ctx) -> None:
        dispatch, level = self.dispatch, 0
        while True:
            level += level < 3 and not self.pauses(self.scarce)
            self.settled = self.settled or not self.pauses(self.scarce)
            ready = {"settled": self.settled, "tiles_idle": not self.pauses(self.scarce),
                     "drained": not self.pauses(self.scarce),
                     "finish": self.load is not None and not self.pauses(self.scarce), "compute_level": level,
                     "tiled": self.rng.integers(2), "width": self.width}
            for name, value in ready.items():
                ctx.set(getattr(dispatch, name), int(value))
            names = ("setting", "start", "box_begins", "waits_compute", "compute_take", "base")
            _, reset, offered, walks, box, *found = await ctx.tick().sample(
                dispatch.queue.valid, dispatch.boxes.valid & dispatch.boxes.ready, dispatch.boxes.payload,
                *(getattr(dispatch, name) for name in names))
            if reset:
                self.walked = None
                continue
            self.settled = self.settled and not found[0].as_bits()
            level -= self.take_due
            self.compare(dict(zip(names, found, strict=True)), ready, bool(offered))
            if walks:
                assert offered and self.walked is None
                self.walked = box
                self.boxes += 1
            self.compare_registers(ctx)

    def compare(self, found, ready, offered: bool) -> None:
        free = self.load is None
        if ready["finish"]:
            self.load = None
        assert found["compute_take"] == self.take_due
        index, instruction = self.program[0] if offered and not self.leaving else (0, None)
        is_load = instruction is not None and instruction.opcode in LOADS
        is_box = instruction is not None and instruction.opcode == Opcode.LOAD_ACT
        waits = is_load and instruction["wait_compute"] and (not ready["compute_level"] or self.take_due)
        assert instruction is None or found["waits_compute"] == waits
        # What allows an instruction was seen in the cycle before.
        takes = self.allowed and (self.load is None if is_load else free)
        assert found["setting"].as_bits() == Setting.const(setting_of(instruction.opcode) if takes else {}).as_bits()
        assert found["box_begins"] == self.box_begins
        self.box_begins = takes and is_box
        assert found["start"] == (takes and is_load)
        self.leaving = takes and is_load
        self.take_due = int(self.leaving and instruction["wait_compute"])
        if is_load:
            free = ready["tiles_idle"] if is_box else ready["drained"] or not instruction["post_compute"]
            self.allowed = not takes and self.walked is not None and not waits and free
        else:
            self.allowed = instruction is not None and not takes and ready["settled"] and ready["drained"]
        if not takes:
            return
        self.program.pop(0)
        self.latest = {"index": index, **({"post": instruction["post_compute"]} if is_load else {})}
        if instruction.opcode == Opcode.LOAD_SET:
            self.geometry = {"opcode": int(Opcode.LOAD_SET), **instruction.fields}
        elif instruction.opcode not in LOADS:
            self.geometry = {**self.geometry, "form": EntryForm.BYTES}
        else:
            self.load, self.tiled = instruction.opcode, ready["tiled"]
            assert not is_box or found["base"] == instruction["buf_base"]
            self.compare_box(self.walked, instruction)
            self.walked, self.width = None, random_bits(self.rng, 20)

    def compare_box(self, found, load) -> None:
        """The walk that was announced for a load."""
        if load.opcode == Opcode.LOAD_ACT:
            box = {"blocks": load["blocks"], "pad_top": load["pad_top"], "rows": load["rows"],
                   "height": extent_of(load), "width": self.width, "ring": 0}
        else:
            rows, cols = (1, load["beats"]) if load.opcode == Opcode.LOAD_WGT else (load["rows"], load["cols"])
            box = {"blocks": 1, "height": rows, "width": cols, "ring": 1}
        assert {name: found[name] for name in box} == box

    def compare_registers(self, ctx) -> None:
        """In the next cycle."""
        dispatch = self.dispatch
        assert ctx.get(dispatch.active) == (self.load is not None)
        for name, value in self.latest.items():
            assert ctx.get(getattr(dispatch, name)) == value
        geometry = ctx.get(dispatch.geometry)
        assert {name: geometry[name] for name in self.geometry if name != "reserved"} == {
            name: value for name, value in self.geometry.items() if name != "reserved"}
        if self.load is not None:
            is_box = self.load == Opcode.LOAD_ACT
            assert [ctx.get(signal) for signal in (
                dispatch.to_weights, dispatch.to_side, dispatch.to_path, dispatch.to_tiles)] == [
                self.load == Opcode.LOAD_WGT, self.load == Opcode.LOAD_SIDE, is_box and not self.tiled,
                is_box and self.tiled]
        else:
            assert not any(ctx.get(signal) for signal in (
                dispatch.to_weights, dispatch.to_side, dispatch.to_path, dispatch.to_tiles))


@pytest.mark.parametrize("idle, stall, scarce", [
    (0.0, 0.0, 0.0), (0.5, 0.0, 0.0), (0.0, 0.5, 0.0), (0.0, 0.0, 0.6), (0.4, 0.3, 0.4)])
@pytest.mark.parametrize("name", CONFIGS)
def test_load_dispatch(name, idle, stall, scarce, rng):
    """``scarce``: how often a load does not end, and what an instruction waits for is not there."""
    config = CONFIGS[name]
    random.seed(int(rng.integers(1 << 32)))
    bench = DispatchBench(config, rng=rng, idle=idle, stall=stall, scarce=scarce)

    async def compare(ctx):
        bench.give([random_instruction((Queue.LOAD,), config) for _ in range(10)])
        await bench.cycles(ctx, 15)
        await bench.reset(ctx)
        bench.begin()
        ctx.set(bench.dispatch.finish, 0)
        program = [random_instruction((Queue.LOAD,), config) for _ in range(150)]
        bench.give(program)
        await bench.until(ctx, lambda: not bench.program)
        if not idle and not stall and not scarce:
            # Two cycles for an instruction that sets something, two more for a load: it is walked, and it leaves.
            loads = sum(instruction.opcode in LOADS for instruction in program[1:])
            assert bench.boxes == loads + (program[0].opcode in LOADS)
            assert bench.sent_at["queue"][-1] - bench.sent_at["queue"][0] == 2 * (149 + loads)

    bench.run(compare, background=[bench.surround])
