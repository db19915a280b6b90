"""The registers that the host sees."""

from amaranth.hdl import Cat, Const, Module, Signal, Value
from amaranth.lib.wiring import In, Out

from ..arch.axi import BOUNDARY_BYTES, LITE_ADDRESS_BITS
from ..arch.error_codes import ErrorCode
from ..arch.instruction_layout import INDEX_BITS
from ..arch.registers import (
    COUNTER_BITS,
    LANES,
    MAGIC,
    REGION_BITS,
    VERSION,
    Control,
    address_of,
    counters_of,
    port_bits,
    registers_of,
)
from ..bus.axi import AxiLite
from ..bus.parts import check_of
from ..config import NpuConfig
from ..lib.component import Component
from .engine_port import ENGINES, setting_ports

__all__ = ["RegisterFile"]

_TIMEOUT_AT_RESET = 1 << 20
#: Bytes of the page of registers that every machine has.
_FIRST_PAGE = 1 << LITE_ADDRESS_BITS
#: Registers that can be written in the middle of a run.
_ALWAYS_OPEN = ("timeout", "irq_enable")


class RegisterFile(Component):
    """AXI4-Lite slave with the registers of ``registers.registers_of(config)``.

    A write takes two cycles and is answered in the third, in which a command is given, too. A read takes three, and
    that of a counter as many more at most as there are, as ``PerformanceCounters`` adds it up. Reading the low half of
    a counter keeps the high half for the next read. Byte strobes count. Reserved addresses read as zero. Writes to them
    and to read-only registers do nothing; nor do writes while ``busy`` to registers that a run depends on. The answer
    is always OKAY. Unused bits of a register read as zero.
    """

    def __init__(self, config: NpuConfig):
        self.config = config
        self._check = check_of(config)
        self._settings = {name: port for queue in ENGINES for name, port in setting_ports(queue, config, Out).items()}
        super().__init__({
            "bus": In(AxiLite(address_width=port_bits(config))),               # the host
            "start": Out(1),                    # written to ``control``
            "stop": Out(1),                     # ABORT written to it
            "clear": Out(1),                    # CLEAR written to it
            "busy": In(1),                      # a run is under way
            "done": In(1),                      # the last run reached its END
            "error": In(1),                     # the last run failed
            "error_code": In(ErrorCode),                # why
            "error_index": In(INDEX_BITS),      # in which instruction
            "program_address": Out(config.address_width),  # bus address of the program
            "program_length": Out(INDEX_BITS),  # instructions
            "data_address": Out(config.address_width),  # bus address of the data region
            "data_beats": Out(REGION_BITS),              # its size
            "write_start": Out(REGION_BITS),             # first beat of it that may be written
            "timeout": Out(32, init=_TIMEOUT_AT_RESET),  # type: ignore[call-arg]  # cycles without progress; 0: any number
            **self._settings,                   # of the engines
            "irq_enable": Out(1),               # report by the interrupt
            "counter_select": Out(range(max(2, len(counters_of(config))))),  # counter that is read
            "counter_value": In(COUNTER_BITS),  # its sum
            "counter_valid": In(1),             # that sum is there
            **self._check.register_ports(),
        })

    def elaborate(self, platform):
        m = Module()
        config = self.config
        # Register -> what it stores, or (for the rest) what it shows. Addresses are split in halves; their low bits are
        # not stored.
        page_bits = (BOUNDARY_BYTES - 1).bit_length()
        stored = {
            "program_length": self.program_length,
            "data_beats": self.data_beats,
            "write_start": self.write_start,
            "timeout": self.timeout,
            "irq_enable": self.irq_enable,
        }
        stored |= {name: getattr(self, name) for name in self._settings}
        shown = {
            "id": Const(MAGIC, 32),
            "version": Const(VERSION, 32),
            "config": Const(config.digest, 32),
            "lanes": Cat(Const(getattr(config, name), 8) for name in LANES),
            "control": Const(0, 32),
            "status": Cat(self.busy, self.done, self.error),
            "error_code": self.error_code,
            "error_index": self.error_index,
        }
        bits = {name: list(target) for name, target in stored.items()}
        bits |= self._check.stored(self)
        for region, address in (("program", self.program_address), ("data", self.data_address)):
            bits[f"{region}_low"] = [None] * page_bits + list(address[page_bits:32])
            bits[f"{region}_high"] = list(address[32:])
        for name, targets in bits.items():
            shown[name] = Cat(Const(0, 1) if bit is None else bit for bit in targets)
        shown |= self._check.shown(self)
        fixed = [register for register in registers_of(config) if not register.name.startswith("counter_")]
        assert {register.name for register in fixed} == set(shown)
        assert {register.name for register in fixed if register.writable} == {*bits, "control"}

        self._write(m, bits)
        self._read(m, {register.address: shown[register.name] for register in fixed})
        return m

    def _write(self, m: Module, bits: dict):
        """Accepts address and data together, whichever comes first, in the cycle after both are there."""
        bus = self.bus
        accept = Signal()
        m.d.sync += accept.eq(bus.awvalid & bus.wvalid & ~accept & ~bus.bvalid)
        m.d.comb += [bus.awready.eq(accept), bus.wready.eq(accept)]
        commands = (self.start, self.stop, self.clear)
        m.d.sync += [signal.eq(0) for signal in commands]
        with m.If(accept):
            m.d.sync += bus.bvalid.eq(1)
        with m.Elif(bus.bready):
            m.d.sync += bus.bvalid.eq(0)

        with m.If(accept):
            with m.Switch(bus.awaddr[2:]):
                with m.Case(address_of("control") >> 2):
                    command = [bus.wdata[flag.value.bit_length() - 1] & bus.wstrb[0] for flag in Control]
                    m.d.sync += [signal.eq(bit) for signal, bit in zip(commands, command, strict=True)]
                for name, targets in bits.items():
                    # What a run works by stands still while it lasts.
                    open_ = 1 if name in _ALWAYS_OPEN else self._check.open(self, name, ~self.busy)
                    with m.Case(address_of(name) >> 2):
                        for lane in range(4):
                            with m.If(bus.wstrb[lane] & open_):
                                m.d.sync += [target.eq(bus.wdata[position]) for position, target in enumerate(targets)
                                             if target is not None and position // 8 == lane]

    def _read(self, m: Module, shown: dict):
        """Looks at the address while the master holds it, and takes it once the data is caught."""
        bus = self.bus
        number, looked = Signal(len(bus.araddr) - 2), Signal()    # the address held a cycle ago, if there was one
        is_counter, is_high = Signal(), Signal()
        high_half = Signal(COUNTER_BITS - 32)
        counters = counters_of(self.config)
        base = address_of(f"counter_{counters[0]}_low") >> 2
        asked = bus.araddr[2:]
        within = (asked >= base) & (asked < base + 2 * len(counters))
        m.d.sync += [
            number.eq(asked),
            looked.eq(bus.arvalid & ~bus.arready & ~bus.rvalid),
            is_high.eq(within & asked[0]),
            is_counter.eq(within & ~asked[0]),
            self.counter_select.eq((asked - base)[1:][:len(self.counter_select)]),
        ]
        beyond = {address: value for address, value in shown.items() if address >= _FIRST_PAGE}
        cases: dict[int | str, Value] = {
            address >> 2: value for address, value in shown.items() if address not in beyond}
        if beyond:
            cases["1" + "-" * (len(number) - 1)] = self._read_ahead(m, asked, beyond)
        with m.If(bus.arready):
            m.d.sync += [bus.arready.eq(0), bus.rvalid.eq(1)]
        with m.Elif(bus.rvalid):
            with m.If(bus.rready):
                m.d.sync += bus.rvalid.eq(0)
        with m.Elif(looked & (~is_counter | self.counter_valid)):
            m.d.sync += bus.arready.eq(1)
            with m.If(is_counter):
                m.d.sync += Cat(bus.rdata, high_half).eq(self.counter_value)
            with m.Elif(is_high):
                m.d.sync += bus.rdata.eq(high_half)
            with m.Else():
                with m.Switch(number):
                    for case, value in cases.items():
                        with m.Case(case):
                            m.d.sync += bus.rdata.eq(value)
                    with m.Default():
                        m.d.sync += bus.rdata.eq(0)

    def _read_ahead(self, m: Module, asked: Value, shown: dict[int, Value]) -> Value:
        """What the second page shows, chosen in the cycle in which its address is looked at: one choice among the
        registers of both pages would take levels that the first does not.
        """
        value = Signal(32)
        with m.Switch(asked[:-1]):
            for address, register in shown.items():
                with m.Case((address - _FIRST_PAGE) >> 2):
                    m.d.sync += value.eq(register)
            with m.Default():
                m.d.sync += value.eq(0)
        return value
