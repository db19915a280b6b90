"""The machine: all engines, their tokens, rings and bus."""

from amaranth.hdl import Cat, Module, ResetInserter, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from .arch.error_codes import ErrorCode
from .arch.instruction_layout import INDEX_BITS
from .arch.isa import Queue
from .arch.registers import ENGINE_STATES, STATE_BITS, counters_of, port_bits
from .buffers.input_buffer import kept_port
from .bus.axi import Axi4Read, Axi4Write, AxiLite
from .bus.parts import check_of
from .bus.read_engine import ReadEngine
from .bus.write_engine import WriteEngine
from .compute.compute_engine import ComputeEngine
from .compute.engine_pair import EnginePair
from .config import NpuConfig, part_of
from .control.cycle_counter import CycleCounter
from .control.engine_port import setting_ports, token_bits, token_takers
from .control.instruction_fetch import InstructionFetch
from .control.machine_control import MachineControl
from .control.performance_counters import PerformanceCounters
from .control.register_file import RegisterFile
from .control.token_counter import TokenCounter
from .lib.component import Component
from .lib.fifo import BufferedFifo
from .load.load_engine import LoadEngine
from .store.parts import turns_of
from .store.store_engine import StoreEngine

__all__ = ["TRACE", "Npu"]

#: Ports of ``trace`` and their bits.
TRACE = {
    **{f"{engine}_{part}": bits for engine in ENGINE_STATES
       for part, bits in (("state", STATE_BITS), ("index", INDEX_BITS))},
    "fetch_index": INDEX_BITS, "fetch_waiting": 1, "stores": token_bits(Queue.STORE, Queue.LOAD), "halt": 1,
}


class Npu(Component):
    """One generated accelerator: AXI4-Lite registers in, AXI4 memory out. docs/architecture.md is its manual.

    The ``trace`` ports are for simulation; leave them open in hardware. In every cycle they show what each engine does
    (`registers.ENGINE_STATES`) and for which instruction; the instruction to be dispatched next, and whether its queue
    is full; the tokens of STOREs that no load has taken; and whether the machine is being stopped.
    """

    def __init__(self, config: NpuConfig):
        self.config = config
        self.load = LoadEngine(config)
        self.compute = EnginePair(config) if config.binary_engine else ComputeEngine(config)
        bus = {"address_width": config.address_width, "data_bits": config.beat_bits}
        super().__init__({
            "irq": Out(1),           # to the host, while DONE or ERROR: a register
            "s_axi": In(AxiLite(address_width=port_bits(config))),  # registers
            "m_axi": Out(wiring.Signature({**Axi4Read(**bus).members, **Axi4Write(**bus).members})),  # memory
            # What the machine is doing.
            "trace": Out(wiring.Signature({name: Out(bits) for name, bits in TRACE.items()})),
        })

    def elaborate(self, platform):
        m = Module()
        config, check = self.config, check_of(self.config)
        m.submodules.registers = registers = RegisterFile(config)
        m.submodules.counters = counters = part_of(
            config, PerformanceCounters, {"cycles_only": CycleCounter})()
        m.submodules.control = control = MachineControl(sources=6 + check.SOURCES)

        def add(name, component):
            """A part that START and every error set back to its first state."""
            m.submodules[name] = ResetInserter(control.reset)(component)
            return component

        read = add("read", ReadEngine(config))
        write = add("write", WriteEngine(config))
        fetch = add("fetch", InstructionFetch(config))
        load = add("load", self.load)
        compute = add("compute", self.compute)
        store = add("store", StoreEngine(config))
        weight_ring = add("weight_ring", BufferedFifo(width=config.beat_bits, depth=config.weight_depth))
        side_ring = add("side_ring", BufferedFifo(width=config.beat_bits, depth=config.side_depth))

        # -- bus -----------------------------------------------------------------------------------------------
        for engine in (read, write):
            for name, member in engine.axi.signature.members.items():
                inner, outer = getattr(engine.axi, name), getattr(self.m_axi, name)
                m.d.comb += outer.eq(inner) if member.flow == Out else inner.eq(outer)
        connect(m, flipped(self.s_axi), registers.bus)
        connect(m, fetch.request, read.fetch_request)
        connect(m, load.request, read.load_request)
        connect(m, store.run, write.run)
        connect(m, store.data, write.data)
        m.d.comb += [fetch.data.eq(read.fetch_data), load.response.eq(read.load_data)]

        # -- queues, rings and buffers ---------------------------------------------------------------------------
        for engine, queue in ((load, fetch.load), (compute, fetch.compute), (store, fetch.store)):
            connect(m, queue, engine.queue)
        for source, ring, sink in ((load.weights, weight_ring, compute.weights), (load.side, side_ring, store.side)):
            connect(m, source, ring.w_stream)
            connect(m, ring.r_stream, sink)
        m.d.comb += turns_of(self.config).ring(store, side_ring)
        connect(m, compute.pooled, store.pooled)
        m.d.comb += compute.weights_level.eq(weight_ring.r_level)
        connect(m, load.write, compute.write)
        m.d.comb += [getattr(load, name).eq(getattr(store, name)) for name in kept_port(config, In)]
        engines = {Queue.LOAD: load, Queue.COMPUTE: compute, Queue.STORE: store}
        m.d.comb += [getattr(engine, name).eq(getattr(registers, name)) for queue, engine in engines.items()
                     for name in setting_ports(queue, config, In)]
        m.d.comb += [
            compute.read_enable.eq(store.read_enable),
            compute.read_bank.eq(store.read_bank),
            compute.read_address.eq(store.read_address),
            store.read_data.eq(compute.read_data),
        ]

        # -- tokens -----------------------------------------------------------------------------------------------
        overflow = []

        for giver, taker in token_takers():
            source, sink = giver.name.lower(), taker.name.lower()
            counter = add(f"{source}_to_{sink}", TokenCounter(width=token_bits(giver, taker)))
            # That a STORE's data is in memory, the write engine knows.
            of_write = (giver, taker) == (Queue.STORE, Queue.LOAD)
            m.d.comb += [
                counter.post.eq(write.stored if of_write else getattr(engines[giver], f"post_{sink}")),
                counter.take.eq(getattr(engines[taker], f"{source}_take")),
                getattr(engines[taker], f"{source}_level").eq(counter.level),
            ]
            overflow.append(counter.overflow)

        # -- control ----------------------------------------------------------------------------------------------
        m.d.comb += [
            fetch.start.eq(control.fetch_start),
            fetch.program_address.eq(registers.program_address),
            fetch.program_length.eq(registers.program_length),
            fetch.engines_idle.eq(load.idle & compute.idle & store.idle & write.idle),
            load.data_address.eq(registers.data_address),
            load.data_beats.eq(registers.data_beats),
            store.data_address.eq(registers.data_address),
            store.data_beats.eq(registers.data_beats),
            store.write_start.eq(registers.write_start),
            *[engine.halt.eq(control.halt) for engine in (read, write, fetch, load, compute, store)],
            control.start.eq(registers.start),
            control.stop.eq(registers.stop),
            control.clear.eq(registers.clear),
            control.irq_enable.eq(registers.irq_enable),
            control.timeout.eq(registers.timeout),
            control.finished.eq(fetch.done),
            *[getattr(registers, name).eq(getattr(control, name))
              for name in ("busy", "done", "error", "error_code", "error_index")],
            self.irq.eq(control.irq),
        ]
        m.d.sync += [
            # Once the bus is quiet nothing but a burst that one of them holds, which they would say, can go out.
            control.bus_idle.eq(read.idle & write.idle),
            control.errors[5].valid.eq(Cat(*overflow).any()),
            control.errors[5].code.eq(ErrorCode.TOKEN),
            control.errors[5].index.eq(fetch.index),
        ]
        for number, source in enumerate((fetch, load, compute, store, write)):
            m.d.comb += control.errors[number].eq(source.error)
        begins = control.reset & control.counting
        held_back = check.join(m, registers=registers, read=read, write=write, fetch=fetch, load=load, begins=begins)
        m.d.comb += [control.errors[number].eq(error) for number, error in enumerate(held_back, 6)]

        # -- observation -------------------------------------------------------------------------------------------
        events = {
            "cycles": control.counting,
            "instructions": fetch.dispatched,
            "fetch_wait_queue": fetch.waiting,
            "read_beats": read.beat,
            "write_beats": write.beat,
        }
        moving = read.handshake | write.handshake | fetch.dispatched
        waiting = []
        for engine, states in ENGINE_STATES.items():
            part = engines[Queue[engine.upper()]]
            m.d.comb += [
                getattr(self.trace, f"{engine}_state").eq(part.state),
                getattr(self.trace, f"{engine}_index").eq(part.index),
            ]
            for code, state in enumerate(states):
                if state != "idle":
                    events[f"{engine}_{state}"] = control.counting & (part.state == code)
            moving = moving | (part.state == states.index("busy"))
            stuck, index = Signal(name=f"{engine}_stuck"), Signal(INDEX_BITS, name=f"{engine}_stuck_index")
            m.d.sync += [stuck.eq(~part.idle), index.eq(part.index)]
            waiting.append((stuck, index))
        m.d.comb += [
            self.trace.fetch_index.eq(fetch.index),
            self.trace.fetch_waiting.eq(fetch.waiting),
            self.trace.stores.eq(load.store_level),
            self.trace.halt.eq(control.halt),
            counters.select.eq(registers.counter_select),
            registers.counter_value.eq(counters.value),
            registers.counter_valid.eq(counters.valid),
        ]
        # All a cycle late: so neither counters nor watchdog are on the engines' paths.
        m.d.sync += [
            control.progress.eq(moving),
            counters.events.eq(Cat(*[events[name] for name in counters_of(config)])),
            counters.clear.eq(begins),
            # What stands still: the load queue's instruction, else the compute queue's, else the store queue's.
            control.stalled_index.eq(fetch.index),
        ]
        for stuck, index in reversed(waiting):
            with m.If(stuck):
                m.d.sync += control.stalled_index.eq(index)
        return m
