"""The time model against what can be counted by hand, against the functional simulator, and against the RTL."""

import dataclasses

import numpy as np
import pytest

from boards.registry import get_board
from cores.arch.error_codes import ErrorCode
from cores.arch.instruction import Instruction, decode
from cores.arch.isa import INSTRUCTION_BYTES, Opcode, Queue, StepKind
from cores.arch.registers import ENGINE_STATES
from cores.compute.compute_engine import ComputeEngine
from cores.config import NpuConfig
from gen.compiler import compile_graph
from gen.onnx.importer import load
from gen.run.memory import bus_of
from sim import cycles as cycles_module
from sim.cycles import Timing, cycles_below, estimate
from sim.errors import MachineError
from sim.functional import run
from sim.profile import layer_timings
from sim.rtl import Bus, RtlMachine, run_program
from sim.timing.bus import burst_lengths
from sim.timing.fifo import NEVER, TimedFifo, earliest
from tests.random_cases import MACHINES, compile_case

from .cases import CONFIGS, SMALL, chain, compute_set, load_set, pool_program, requant
from .programs import END, assemble


def spent(timing: Timing, engine: Queue, state: str, index: int) -> int:
    name = engine.name.lower()
    return int(timing.counts[engine - 1, ENGINE_STATES[name].index(state), index])


def tile(config: NpuConfig, *, rows: int, cols: int, blocks: int) -> bytes:
    """One COMPUTE whose activations and weights are there early, and the SYNC that waits for it."""
    steps = blocks * config.groups_dense
    loads = [
        Instruction(Opcode.LOAD_SET, cols=cols, row_pitch=cols, block_pitch=0, stride=1, buf_row_pitch=-(-cols // 2)),
        Instruction(Opcode.LOAD_ACT, blocks=1, rows=rows, post_compute=1),
        Instruction(Opcode.LOAD_WGT, offset=0, beats=steps * config.weight_beats),
    ]
    return assemble(
        *loads,
        Instruction(Opcode.COMPUTE_SET, kernel_h=1, kernel_w=1, stride=1, rows=rows, cols=cols,
                    buf_row_pitch=-(-cols // 2), buf_row_step=-(-cols // 2)),
        Instruction(Opcode.COMPUTE, blocks=blocks, groups=config.groups_dense, first=1, wait_load=1),
        END,
    )


# -- parts ---------------------------------------------------------------------------------------------------------


def test_earliest():
    assert earliest(np.array([5, 5, 9, 9])).tolist() == [5, 6, 9, 10]
    assert earliest(np.array([5, 5, 13, NEVER]), 3).tolist() == [5, 8, 13, 16]


def test_fifo_keeps_times():
    fifo = TimedFifo(4, 2)
    assert (fifo.room, fifo.writable(4).max() < 0) == (4, True)
    fifo.push([10, 11, 12, 13])
    assert fifo.full and fifo.readable(4).tolist() == [12, 13, 14, 15]
    fifo.pop([20, 30])
    assert (fifo.available, fifo.room) == (2, 2)
    assert fifo.writable(2).tolist() == [21, 31]


@pytest.mark.parametrize("config,offset,beats,lengths", [
    (NpuConfig(), 0, 256, [256]),
    (NpuConfig(), 250, 20, [6, 14]),
    (NpuConfig(), 255, 514, [1, 256, 256, 1]),
    (CONFIGS["tn32"], 100, 60, [28, 32]),
])
def test_bursts_end_at_page_boundaries(config, offset, beats, lengths):
    assert burst_lengths(config, offset, beats) == lengths


# -- by hand -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rows,cols,blocks", [(8, 15, 1), (4, 9, 3), (1, 1, 5)])
def test_compute_is_busy_for_steps_times_words(rows, cols, blocks):
    config = dataclasses.replace(SMALL, weight_depth=1024)
    timing = estimate(config, tile(config, rows=rows, cols=cols, blocks=blocks))
    words, steps = rows * ((cols + 1) // 2), blocks * config.groups_dense
    assert spent(timing, Queue.COMPUTE, "busy", 4) == words * steps
    # Weights are shifted in after those at work: a step is no shorter than its beats.
    shortest = max(config.weight_beats, ComputeEngine.min_step(config))
    waited = sum(spent(timing, Queue.COMPUTE, state, 4) for state in ("wait_weights", "setup"))
    assert (shortest - words) * (steps - 1) <= waited if words < shortest else waited < 8


@pytest.mark.slow
@pytest.mark.parametrize("name", MACHINES)
def test_a_limit_does_not_change_the_cycles(name, seed):
    """Where the reckoning breaks off, the program takes as long as that indeed."""
    for number in range(5):
        _, program, _ = compile_case(MACHINES[name], seed + number)
        instructions = [decode(program.code[at:at + INSTRUCTION_BYTES])
                        for at in range(0, len(program.code), INSTRUCTION_BYTES)]
        cycles = estimate(program.config, program.code).cycles
        assert cycles_below(cycles + 1, program.config, instructions) == cycles
        assert cycles_below(cycles, program.config, instructions) is None


def test_a_limit_below_the_work_is_known_at_once(monkeypatch):
    config = dataclasses.replace(SMALL, weight_depth=1024)
    code = tile(config, rows=8, cols=15, blocks=3)
    instructions = [decode(code[at:at + INSTRUCTION_BYTES]) for at in range(0, len(code), INSTRUCTION_BYTES)]
    monkeypatch.setattr(cycles_module.Dispatcher, "run", lambda self: iter(()))
    assert cycles_below(8 * 8 * 3 * config.groups_dense, config, instructions) is None
    with pytest.raises(MachineError, match="nothing can move"):
        cycles_below(8 * 8 * 3 * config.groups_dense + 1, config, instructions)


def test_weights_come_at_a_beat_a_cycle():
    """A single pixel: the array waits for every step's weights, and the bus is what limits it."""
    config = NpuConfig()
    blocks = 64
    timing = estimate(config, tile(config, rows=1, cols=1, blocks=blocks))
    beats = blocks * config.groups_dense * config.weight_beats
    assert beats <= timing.last[Queue.COMPUTE - 1, 4] - timing.first[Queue.COMPUTE - 1, 4] < beats + 50


def test_short_steps_equal_the_rtl(rng):
    """Steps of a word or two, dense and indexed: how they wait for their weights, state by state."""
    config = NpuConfig(oc_lanes=16, ic_lanes=8, nnz_lanes=4, input_depth=512, acc_depth=64, weight_depth=512)
    image = rng.integers(0, 256, 512 * config.beat_bytes, np.uint8)
    with RtlMachine(config) as machine:
        for cols in (1, 5, 16, 23):
            indexed = rng.integers(0, 2, 6)
            beats = config.groups_dense * (len(indexed) * config.weight_beats + int(indexed.sum()) * config.index_beats)
            code = assemble(
                Instruction(Opcode.LOAD_SET, cols=cols, row_pitch=cols, stride=1, buf_row_pitch=-(-cols // 2)),
                Instruction(Opcode.LOAD_ACT, blocks=1, rows=1, post_compute=1),
                Instruction(Opcode.LOAD_WGT, offset=0, beats=beats),
                Instruction(Opcode.COMPUTE_SET, kernel_h=1, kernel_w=1, stride=1, rows=1, cols=cols),
                *(Instruction(Opcode.COMPUTE, blocks=1, groups=config.groups_dense, first=1,
                              kind=StepKind.INDEXED if kind else StepKind.DENSE, wait_load=int(number == 0))
                  for number, kind in enumerate(indexed)),
                END)
            result = run_program(machine, code, image, write_start=512)
            timing = estimate(config, code)
            assert timing.cycles == result.counters["cycles"]
            np.testing.assert_array_equal(timing.counts[Queue.COMPUTE - 1], result.trace.counts[Queue.COMPUTE - 1])


def test_latency_is_paid_once():
    code = tile(SMALL, rows=4, cols=15, blocks=1)
    short, long = (estimate(SMALL, code, latency=latency).cycles for latency in (40, 140))
    assert 200 <= long - short <= 205       # once for the program, once for the activations


@pytest.mark.parametrize("cols", [1, 16])
def test_short_rows_wait_for_responses(cols):
    """Eight bursts may be unanswered, so rows of a beat are stored at eight a latency; long ones at a beat a cycle."""
    rows = 256
    code = assemble(
        Instruction(Opcode.LOAD_SIDE, offset=0, cols=8, rows=1),
        Instruction(Opcode.COMPUTE_SET, kernel_h=1, kernel_w=1, stride=1, rows=rows, cols=cols),
        Instruction(Opcode.STORE_SET, rows=rows, cols=cols, row_pitch=16), requant(),
        Instruction(Opcode.POOL, blocks=1),
        Instruction(Opcode.STORE, offset=512, blocks=1, pooled=1),
        END,
    )
    expected = max(rows * cols, rows * 40 // SMALL.outstanding_writes)
    assert expected <= estimate(SMALL, code).cycles <= 1.15 * expected + 200


def test_loads_wait_for_the_buffer(seed):
    """The third tile's activations go where the first one's were."""
    code = chain(seed)[0]
    timing = estimate(SMALL, code)
    loads = [i for i in range(len(code) // 16) if decode(code[16 * i:16 * i + 16]).opcode == Opcode.LOAD_ACT]
    assert [spent(timing, Queue.LOAD, "wait_compute", i) > 0 for i in loads[:3]] == [False, False, True]
    assert timing.last[Queue.LOAD - 1, loads[2]] > timing.last[Queue.COMPUTE - 1, 5]


def test_nothing_but_end():
    timing = estimate(SMALL, assemble(END))
    assert timing.cycles < 60 and (timing.read_beats, timing.write_beats) == (2, 0)


@pytest.mark.parametrize("after", [Instruction(Opcode.LOAD_GATHER, outputs=1, length=1), Instruction(Opcode.COMPUTE)])
def test_nothing_after_the_end_is_decoded(after):
    """It is fetched, as the machine does that ahead, whatever it is."""
    whole, memory = assemble(END, END, END), np.zeros(SMALL.beat_bytes, np.uint8)
    for code in (assemble(END, after, END), assemble(END) + b"\xff" * 2 * INSTRUCTION_BYTES):
        run(SMALL, code, memory, write_start=0)
        found = estimate(SMALL, code)
        assert (found.cycles, found.read_beats) == (estimate(SMALL, whole).cycles, estimate(SMALL, whole).read_beats)


# -- against the functional simulator ----------------------------------------------------------------------------


def programs(seed: int, config: NpuConfig) -> dict[str, tuple[bytes, np.ndarray, int]]:
    rng = np.random.default_rng(seed)
    found = {"chain": chain(seed, dataclasses.replace(config, oc_lanes=config.ic_lanes))[:3]}
    for add in (False, True):
        instructions, image, start, _ = pool_program(rng, config, maximum=add, add=add, kernel=(3, 2), stride=(2, 2))
        found[f"pool{' add' * add}"] = assemble(*instructions), image, start
    return found


@pytest.mark.parametrize("name", ["px2", "px1", "tn16", "tn32"])
def test_counts_the_same_beats(seed, name):
    config = dataclasses.replace(CONFIGS[name], oc_lanes=CONFIGS[name].ic_lanes)
    for code, image, start in programs(seed, config).values():
        result, timing = run(config, code, image, write_start=start), estimate(config, code)
        fetched = -(-len(code) // config.beat_bytes)
        assert (timing.read_beats, timing.write_beats) == (result.read_beats + fetched, result.write_beats)
        instructions = [decode(code[at:at + 16]) for at in range(0, len(code), 16)]
        for index, instruction in enumerate(instructions):
            engine = instruction.opcode.queue
            if engine == Queue.CONTROL:
                continue
            first, last = timing.first[engine - 1, index], timing.last[engine - 1, index]
            assert 0 <= first <= last < timing.cycles
            assert timing.counts[engine - 1, :, index].sum() <= last - first + 3
        # Each queue is in order.
        for engine in (Queue.LOAD, Queue.COMPUTE, Queue.STORE):
            own = [i for i, instruction in enumerate(instructions)
                   if instruction.opcode.queue == engine and "SET" not in instruction.opcode.name]
            assert (np.diff(timing.last[engine - 1, own]) > 0).all()


def test_order_of_simulation_does_not_matter(seed, monkeypatch):
    """The processes may run ahead of each other in any order; only the fetch's place on the bus moves a little."""
    code = chain(seed)[0]
    expected = estimate(SMALL, code)

    class Late(cycles_module.Dispatcher):
        """Believes to be far ahead, so that all others go first."""

        clock = property(lambda self: 1 << 40, lambda self, value: None)

    monkeypatch.setattr(cycles_module, "Dispatcher", Late)
    assert abs(estimate(SMALL, code).cycles - expected.cycles) <= 16


def test_more_of_everything_is_not_slower(seed):
    code = chain(seed)[0]
    base = estimate(SMALL, code).cycles
    for better in (dict(weight_depth=1024), dict(side_depth=1024), dict(queue_depth=32), dict(outstanding_writes=16)):
        assert estimate(dataclasses.replace(SMALL, **better), code).cycles <= base


# -- errors --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("code,error,index", [
    (assemble(END)[:15] + b"\x80", ErrorCode.ILLEGAL, 0),
    (assemble(Instruction(Opcode.LOAD_ACT, blocks=1, rows=1), END), ErrorCode.ILLEGAL, 0),
    (assemble(Instruction(Opcode.SYNC)), ErrorCode.NO_END, 1),
    (assemble(Instruction(Opcode.LOAD_WGT, offset=0, beats=513), END), ErrorCode.TIMEOUT, 2),
    (assemble(Instruction(Opcode.LOAD_WGT, offset=0, beats=1, wait_compute=1), END), ErrorCode.TIMEOUT, 2),
])
def test_programs_that_fail(code, error, index):
    with pytest.raises(MachineError) as caught:
        estimate(SMALL, code)
    assert (caught.value.cause, caught.value.index) == (error, index)


@pytest.mark.parametrize("instruction", [Instruction(Opcode.LOAD_GATHER, outputs=1, length=1),
                                         Instruction(Opcode.LOAD_WINOGRAD, tile_cols=1)])
def test_operations_that_the_machine_does_not_have(instruction):
    with pytest.raises(MachineError, match="ILLEGAL at instruction 1: this machine has no LOAD_"):
        estimate(SMALL, assemble(load_set(), instruction, END))


@pytest.mark.parametrize("fields, text", [
    ({"acc_base": 5}, "acc_base"), ({"kind": StepKind.BINARY}, "kind BINARY"),
    ({"kind": StepKind.WINDOW}, "kind WINDOW")])
def test_fields_of_units_that_are_not_there(fields, text):
    """They are illegal, as to the hardware and the functional simulator."""
    code = assemble(Instruction(Opcode.LOAD_WGT, offset=0, beats=4 * SMALL.weight_beats), compute_set(),
                    Instruction(Opcode.COMPUTE, blocks=1, groups=4, first=1, **fields), END)
    with pytest.raises(MachineError, match=f"ILLEGAL at instruction 2: this machine's COMPUTE has no {text}"):
        estimate(SMALL, code)


# -- against the RTL -----------------------------------------------------------------------------------------------


def test_equals_the_rtl(seed):
    """Whole programs within 2 %, every instruction's end within a few cycles. The trace begins two cycles earlier.

    No fetch cuts in on their loads, so every engine spends the same cycles of each instruction in each state.
    """
    config = NpuConfig.preset(16)
    with RtlMachine(config) as machine:
        for name, (code, image, start) in programs(seed, config).items():
            result = run_program(machine, code, image, write_start=start)
            timing = estimate(config, code)
            assert timing.cycles == pytest.approx(result.counters["cycles"], rel=0.02), name
            assert timing.read_beats == result.counters["read_beats"], name
            for engine in range(3):
                busy = np.flatnonzero(timing.counts[engine, 1])
                late = timing.last[engine, busy] + 2 - result.trace.last[engine, busy]
                assert np.abs(late).max(initial=0) <= 4, f"{name}, engine {engine}: {late}"
            np.testing.assert_array_equal(timing.counts, result.trace.counts, name)


@pytest.mark.parametrize("reads, writes, graphs", [
    (None, None, 12), *(pytest.param(*depths, 40, marks=pytest.mark.full) for depths in (
        (2, 2), (None, 2), (2, None), (4, 4), (None, None), (64, 64))),
])
def test_depths_of_the_bus(seed, reads, writes, graphs):
    """Compiled graphs on machines with few and many bursts in flight, None: any number of them. Within 1 %, as
    docs/simulators.md says: where a fetch and a load change places, either is late by a burst, here of 16 beats."""
    rng = np.random.default_rng(seed)
    reads, writes = (depth or int(rng.choice([2, 4, 8, 16, 32, 64])) for depth in (reads, writes))
    config, errors = dataclasses.replace(SMALL, input_depth=512, outstanding_reads=reads, outstanding_writes=writes), {}
    with RtlMachine(config) as machine:
        for number in range(seed, seed + graphs):
            _, program, _ = compile_case(config, number)
            real = run_program(machine, program.code, program.image(), write_start=program.write_start)
            errors[number] = estimate(config, program.code).cycles / real.counters["cycles"] - 1
    worst = max(errors, key=lambda number: abs(errors[number]))
    said = f"{reads} reads and {writes} writes in flight: {errors[worst]:+.2%} at worst, of graph {worst}"
    print(said)
    assert errors[worst] == pytest.approx(0, abs=0.01), said


@pytest.mark.parametrize("paces", [(2, 2), (1, 2)])
def test_a_port_narrower_than_a_beat(seed, paces):
    """A beat takes several cycles on it, on the RTL and in the model, which are 0.5 % or a few cycles apart."""
    config = NpuConfig.preset(16)
    wide = bus_of(get_board("zu3eg"), config, 333).dram
    narrow = dataclasses.replace(wide, read_pace=paces[0], write_pace=paces[1])
    with RtlMachine(config, bus=Bus(dram=narrow)) as machine:
        for name, (code, image, start) in programs(seed, config).items():
            real = run_program(machine, code, image, write_start=start).counters["cycles"]
            assert estimate(config, code, dram=narrow).cycles == pytest.approx(real, rel=0.005, abs=4), name
            if paces[0] > 1:
                assert estimate(config, code, dram=wide).cycles < real, name


@pytest.mark.parametrize("board, macs, reads, writes", [
    ("zynq7020", 16, 1, 1), ("zynq7020", 64, 1, 2), ("zynq7020", 256, 1, 2), ("zynq7020", 512, 2, 4),
    ("zu3eg", 256, 1, 1), ("zu3eg", 512, 1, 2), ("ecp5", 64, 1, 1),
])
def test_ports_of_boards(board, macs, reads, writes):
    """Two of 64 bits that reads share on the Zynq-7020, two of 128 bits on Zynq UltraScale+."""
    dram = bus_of(get_board(board), get_board(board).config(macs), 150).dram
    assert (dram.read_pace, dram.write_pace) == (reads, writes)
    shared = get_board(board).shares_reads(get_board(board).config(macs).beat_bits)
    latency = get_board(board).memory.latency_cycles(150)
    # Pieces of bursts on two ports are a memory with five cycles more (docs/control.md).
    assert dram.latency == latency + (5 if shared else 0)


@pytest.mark.full
@pytest.mark.parametrize("macs", [16, 256])
@pytest.mark.parametrize("name", [
    "tinymaix_mnist_resnet_int8", "mlperf_kws_dscnn_int8", "mlperf_resnet8_int8", "mlperf_vww_mnv1_025_int8",
    "yolo_person_96_int8",
])
def test_models_on_the_rtl(seed, models, name, macs):
    """A whole network within 2 %, each layer within 5 % (or 16 cycles)."""
    graph = load(models / f"{name}.onnx")
    program, _ = compile_graph(graph, NpuConfig.preset(macs))
    image = program.image()
    with RtlMachine(program.config) as machine:
        result = run_program(machine, program.code, image, write_start=program.write_start)
    timing = estimate(program.config, program.code)
    real = layer_timings(program, result.trace, result.cycles)
    model = layer_timings(program, timing, timing.cycles)
    errors = [(layer.cycles - known.cycles) / known.cycles for layer, known in zip(model, real, strict=True)]
    print(f"{name}, {macs} MACs: {result.cycles} cycles, model {timing.cycles}; "
          f"layers: worst {max(map(abs, errors)):.2%}, mean {np.abs(errors).mean():.2%}")
    assert timing.cycles == pytest.approx(result.cycles, rel=0.02)
    for layer, known in zip(model, real, strict=True):
        assert layer.cycles == pytest.approx(known.cycles, rel=0.05, abs=16), layer.name
        assert layer.dram_bytes == known.dram_bytes
