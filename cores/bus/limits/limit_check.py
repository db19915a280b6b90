"""The limits in the machine: registers that the host locks, and a comparison in front of each address channel."""

from typing import Any

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib.wiring import In, Out

from cores.arch.error_codes import LimitCode
from cores.arch.instruction_layout import INDEX_BITS
from cores.arch.registers import LIMIT_REGISTERS
from cores.bus.burst_check import BurstCheck

from .burst_limits import BurstLimits
from .layouts import PAGE_SHIFT, limits_layout, refusal_layout
from .limit_report import LimitReport

__all__ = ["LimitCheck"]


class LimitCheck(BurstCheck):
    """A burst outside of the limits stays in its splitter, and the machine stops."""

    READ_TAG_BITS = INDEX_BITS
    SOURCES = 1

    def _ports(self) -> dict[str, Any]:
        return {
            "limits": In(limits_layout(self.config)),      # what may be reached
            "refused": Out(refusal_layout(self.config)),   # a burst is held back
        }

    def read_ports(self):
        # The instruction that is to be dispatched next, and the load in hand.
        return {**self._ports(), "fetch_index": In(INDEX_BITS), "load_index": In(INDEX_BITS)}

    def write_ports(self):
        return self._ports()

    def load_ports(self):
        return {"request_index": Out(INDEX_BITS)}       # instruction whose requests are made

    def register_ports(self):
        return {
            "limits": Out(limits_layout(self.config)),      # what the machine may reach
            "limit_address": In(self.config.address_width),  # of the burst that was held back
        }

    # -- bus ---------------------------------------------------------------------------------------------------------

    def connect_load(self, m, engine, requester):
        m.d.comb += engine.request_index.eq(requester.index)

    def read_tag(self, m, engine, from_load):
        # When a request comes up, the load in hand may be the next one already; a cycle before it is still its own.
        index = Signal(INDEX_BITS, name="request_index")
        with m.If(~engine.load_request.valid):
            m.d.sync += index.eq(engine.load_index)
        return Cat(from_load, Mux(from_load, index, engine.fetch_index))

    def of_load(self, tag):
        return tag[0]

    def passes_read(self, m, engine, splitter, issue):
        tag = splitter.burst.p.tag
        code = Mux(tag[0], LimitCode.LOAD_LIMIT, LimitCode.FETCH_LIMIT)
        return self._passes(m, engine, splitter, issue, code, tag[1:])

    def passes_write(self, m, engine, splitter, issue, index):
        return self._passes(m, engine, splitter, issue, LimitCode.STORE_LIMIT, index)

    def _passes(self, m: Module, engine: Any, splitter: Any, issue: Value, code: Any, index: Value) -> list[Value]:
        m.submodules.limits = compare = BurstLimits(
            self.config, burst_bytes=splitter.burst_beats * splitter.beat_bytes)
        burst = splitter.burst
        m.d.comb += [
            compare.limits.eq(engine.limits),
            compare.run.eq(splitter.run.p.address),
            compare.take.eq(splitter.run.ready),
            compare.burst.eq(burst.p.address),
            compare.next.eq(issue),
            engine.refused.code.eq(code),
            engine.refused.index.eq(index),
            engine.refused.address.eq(burst.p.address),
        ]
        # A cycle late: the burst stays where it is.
        m.d.sync += engine.refused.valid.eq(burst.valid & ~compare.inside & ~engine.halt)
        return [compare.inside]

    # -- registers ---------------------------------------------------------------------------------------------------

    def stored(self, registers):
        limits, bits = registers.limits, {"limit_lock": [registers.limits.locked]}
        for name in ("first", "last"):
            page = list(getattr(limits, name))
            split = 32 - PAGE_SHIFT
            bits[f"limit_{name}_low"] = [None] * PAGE_SHIFT + page[:split]
            bits[f"limit_{name}_high"] = page[split:]
        return bits

    def shown(self, registers):
        low = registers.limits.last[:32 - PAGE_SHIFT]
        return {
            "limit_last_low": Cat(Const(-1, PAGE_SHIFT), low),      # its last byte
            "limit_address_low": registers.limit_address[:32],
            "limit_address_high": Cat(registers.limit_address[32:], Const(0, 1)),
        }

    def open(self, registers, name, idle):
        locked = name in LIMIT_REGISTERS and name != "limit_lock"
        return idle & ~registers.limits.locked if locked else idle

    # -- machine -----------------------------------------------------------------------------------------------------

    def join(self, m, *, registers, read, write, fetch, load, begins):
        m.submodules.limit_report = report = LimitReport(self.config)
        m.d.comb += [
            read.limits.eq(registers.limits),
            write.limits.eq(registers.limits),
            read.fetch_index.eq(fetch.index),
            read.load_index.eq(load.request_index),
            report.of_read.eq(read.refused),
            report.of_write.eq(write.refused),
            report.clear.eq(begins),
            registers.limit_address.eq(report.address),
        ]
        return [report.error]
