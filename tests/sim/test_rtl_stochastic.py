"""Stochastic COMPUTEs on the generated Verilog: every byte is the simulator's, every cycle the time model's."""

import numpy as np
import pytest

from cores.arch.instruction import Instruction
from cores.arch.isa import Opcode, Queue, StepKind
from cores.arch.stochastic import Circuit
from cores.config import NpuConfig
from gen.ir.errors import CompileError
from sim import functional
from sim.cycles import estimate
from sim.errors import HazardError
from sim.rtl import Bus, run_program
from tests.compiled import compile_kept
from tests.cores.stochastic_values import random_streams
from tests.random_streams import centred, random_choice

from .on_rtl import check_on_rtl, machines
from .programs import END, Memory, Requantize, assemble


def _config(circuit: Circuit, rows: int, bits: int = 1, **fields: int) -> NpuConfig:
    sizes = {"oc_lanes": 8, "ic_lanes": 8, "nnz_lanes": 2, "input_depth": 512, "acc_depth": 64, "weight_depth": 512}
    return NpuConfig(**{**sizes, "stochastic_circuit": circuit, "stochastic_rows": rows, "stochastic_bits": bits,
                        **fields})


CONFIGS = {
    "and_loop": _config(Circuit.AND_LOOP, 2),
    "units": _config(Circuit.AND_LOOP, 8, 4, oc_lanes=16, nnz_lanes=4, depthwise=1, gather=1, binary_rows=4),
    "ugemm": _config(Circuit.UGEMM, 8, nnz_lanes=1),
    "counter": _config(Circuit.AND_SEP_COUNTER, 4, pixel_lanes=1),
    "one_cycle": _config(Circuit.XNOR_MUX, 4, 8, ic_lanes=16, oc_lanes=16, nnz_lanes=16),
}

machine = machines(CONFIGS, *(name for name in CONFIGS if name != "and_loop"))


class RandomTiles:
    """A program of tiles, each of a few COMPUTEs of any kind and a STORE; and its data region."""

    def __init__(self, config: NpuConfig, rng: np.random.Generator, tiles: int):
        self.config, self.rng, self.memory = config, rng, Memory(config)
        self.rows, self.cols = int(rng.integers(1, 5)), int(rng.integers(1, 9))
        self.kernel, self.blocks = int(rng.integers(1, 3)), int(rng.integers(1, 3))
        #: int8 sums alone would be of windows, too.
        self.windows = config.depthwise
        self.source = self.memory.put(rng.integers(-128, 128, (self.blocks * self.height * self.width, config.ic_lanes),
                                                   dtype=np.int8))
        loads, computes, stores = [], [], []
        for number in range(tiles):
            units = [StepKind.STOCHASTIC, StepKind.DENSE, *([StepKind.BINARY] if config.binary_rows else [])]
            kinds = rng.choice(units, int(rng.integers(1, 4)))
            for part, kind in enumerate(kinds):
                beats, compute = self.compute(
                    StepKind(kind), first=int(part == 0), bank=number % 2, post_store=int(part == len(kinds) - 1),
                    wait_load=int((number, part) == (0, 0)), wait_store=int(number >= 2 and part == 0))
                offset = self.memory.put(rng.integers(-128, 128, beats * config.beat_bytes, dtype=np.int8))
                loads.append(Instruction(Opcode.LOAD_WGT, offset=offset, beats=beats))
                computes.append(compute)
            stage = Requantize.random(rng, config.oc_lanes, 2.0 ** -12)
            loads.append(Instruction(Opcode.LOAD_SIDE, offset=self.memory.put(stage.pack()), cols=8, row_pitch=8,
                                     rows=config.oc_groups))
            stores.append((stage, number % 2))
        self.write_start = self.memory.beats
        pixels, ends = self.rows * self.cols, []
        for stage, bank in stores:
            target = self.memory.reserve(config.oc_groups * pixels)
            ends += [*stage.set(self.rows, self.cols, self.cols, pixels),
                     Instruction(Opcode.STORE, offset=target, blocks=config.oc_groups, bank=bank, wait_compute=1,
                                 post_compute=1)]
        self.code = assemble(*self.loading(), *self.interleaved(loads, computes, ends), END)

    @property
    def height(self) -> int:
        return self.rows + self.kernel - 1

    @property
    def width(self) -> int:
        return self.cols + self.kernel - 1

    @property
    def row_pitch(self) -> int:
        return -(-self.width // self.config.banks) + 1

    def loading(self) -> list[Instruction]:
        block_pitch = self.row_pitch * self.height
        return [
            Instruction(Opcode.LOAD_SET, cols=self.width, row_pitch=self.width, block_pitch=self.height * self.width,
                        stride=1, buf_row_pitch=self.row_pitch, buf_block_pitch=block_pitch),
            Instruction(Opcode.LOAD_ACT, offset=self.source, blocks=self.blocks, rows=self.height, post_compute=1),
            Instruction(Opcode.COMPUTE_SET, kernel_h=self.kernel, kernel_w=self.kernel, stride=1, rows=self.rows,
                        cols=self.cols, buf_row_pitch=self.row_pitch, buf_row_step=self.row_pitch,
                        buf_block_pitch=block_pitch)]

    def compute(self, kind: StepKind, **fields: int) -> tuple[int, Instruction]:
        """Its beats of weights, and it."""
        config = self.config
        groups = {StepKind.STOCHASTIC: config.stochastic_groups, StepKind.BINARY: config.binary_groups,
                  StepKind.DENSE: config.groups_dense}
        if kind == StepKind.STOCHASTIC:
            fields |= random_streams(self.rng, most=64).fields
        compute = Instruction(Opcode.COMPUTE, blocks=self.blocks, groups=groups[kind], kind=kind, **fields)
        return self.blocks * self.kernel ** 2 * compute["groups"] * config.step_beats(kind), compute

    def interleaved(self, loads, computes, ends) -> list[Instruction]:
        """In an order in which no queue waits for what is after it in another."""
        program = []
        for load in loads:
            program.append(load)
            if load.opcode == Opcode.LOAD_WGT:
                program.append(computes.pop(0))
            else:
                program += [ends.pop(0) for _ in range(3)]
        return program


@pytest.mark.parametrize("part", range(2))
def test_random_tiles(machine, rng, part):
    for _ in range(6):
        tiles = RandomTiles(machine.config, rng, 4)
        shift = int(rng.choice([0, 0, 1, 3]))
        expected = tiles.memory.image()
        functional.run(machine.config, tiles.code, expected, write_start=tiles.write_start, strict=True,
                       stream_shift=shift)
        for bus in (Bus(), Bus(stall_probability=0.4)):
            machine.set_bus(bus)
            result = run_program(machine, tiles.code, tiles.memory.image(), write_start=tiles.write_start,
                                 stream_shift=shift)
            np.testing.assert_array_equal(result.image, expected)


@pytest.mark.parametrize("cols, kinds", [(7, "ss"), (15, "sass"), (1, "ssssss"), (16, "sap"), (3, "pspaspp")])
def test_time(machine, rng, cols, kinds):
    """COMPUTEs stochastic and int8, and POOLs, in turn, of any length: what they wait for each other, to the cycle.

    Their weights are asked for at once, so that instruction fetch does not come between.
    """
    config = machine.config
    row = {"kernel_h": 1, "kernel_w": 1, "stride": 1, "rows": 1, "cols": cols}
    for shift in (0, 2):
        work, beats = [], 0
        for kind in kinds:
            if kind == "p":
                work.append(Instruction(Opcode.POOL, blocks=1, maximum=1))
                continue
            fields = {"groups": config.groups_dense, "kind": StepKind.DENSE}
            if kind == "s":
                fields = {"groups": config.stochastic_groups, "kind": StepKind.STOCHASTIC,
                          **random_streams(rng, most=256).fields}
            work.append(Instruction(Opcode.COMPUTE, blocks=1, first=1, **fields))
            beats += fields["groups"] * config.step_beats(StepKind(fields["kind"]))
        pools = kinds.count("p")
        code = assemble(
            Instruction(Opcode.LOAD_SET, cols=cols, row_pitch=cols, stride=1, buf_row_pitch=cols),
            Instruction(Opcode.LOAD_ACT, blocks=1, rows=1, post_compute=1),
            Instruction(Opcode.LOAD_WGT, offset=0, beats=beats),
            Instruction(Opcode.LOAD_SIDE, offset=0, cols=8, rows=max(1, pools), row_pitch=8),
            Instruction(Opcode.STORE_SET, rows=1, cols=cols, row_pitch=cols, block_pitch=cols),
            Instruction(Opcode.STORE_REQUANT),
            *[Instruction(Opcode.STORE, offset=256, blocks=1, pooled=1)] * pools,
            Instruction(Opcode.COMPUTE_SET, **row),
            Instruction(work[0].opcode, **{**work[0].fields, "wait_load": 1}), *work[1:], END)
        image = rng.integers(0, 256, 512 * config.beat_bytes, np.uint8)
        machine.set_bus(Bus())
        result = run_program(machine, code, image, write_start=256, stream_shift=shift)
        timing = estimate(config, code, stream_shift=shift)
        np.testing.assert_array_equal(timing.counts[Queue.COMPUTE - 1], result.trace.counts[Queue.COMPUTE - 1])
        assert timing.cycles == result.counters["cycles"]


def test_random_layers(machine, seed, rng):
    """Programs of the compiler: every tensor is the reference's."""
    modes = set()
    for number in range(6):
        graph = centred(seed + number, max_channels=40, max_size=6)
        choice = random_choice(graph, machine.config, rng, most=16)
        try:
            program, graph = compile_kept(graph, machine.config, stochastic=choice)
        except CompileError as error:
            assert error.code == "no-tile"
            continue
        check_on_rtl(machine, program, graph, seed + number)
        modes |= {layer.mode for layer in program.layers}
    assert "stochastic" in modes


@pytest.mark.parametrize("change, message", [
    ({"groups": 1}, "1 groups of output lanes, not 4"),
    ({"length": 1, "made": 2}, "more bits are made than streams have"),
])
def test_fields_that_mean_nothing_together(change, message, rng):
    config = CONFIGS["and_loop"]
    tiles = RandomTiles(config, rng, 1)
    compute = Instruction(Opcode.COMPUTE, blocks=1, kind=StepKind.STOCHASTIC, first=1, **{"groups": 4, **change})
    code = assemble(*tiles.loading(), compute, END)
    with pytest.raises(HazardError, match=message):
        functional.run(config, code, tiles.memory.image(), write_start=tiles.write_start, strict=True)
