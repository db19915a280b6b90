"""Machine control: its sequences, cycle by cycle."""

import pytest

from cores.arch.error_codes import ErrorCode
from cores.control.machine_control import MachineControl
from tests.cores.simulation import simulate


class Host:
    """Sets inputs and waits for outputs of a MachineControl in simulation."""

    def __init__(self, ctx, control):
        self.ctx, self.control = ctx, control
        self.resets = 0

    def set(self, **inputs):
        for name, value in inputs.items():
            self.ctx.set(getattr(self.control, name), value)

    def get(self, name):
        return self.ctx.get(getattr(self.control, name))

    async def tick(self, count=1):
        for _ in range(count):
            self.resets += self.get("reset")
            enabled = self.get("irq_enable")
            await self.ctx.tick()
            assert self.get("irq") == (enabled and (self.get("done") or self.get("error"))), "the interrupt is late"

    async def pulse(self, **inputs):
        self.set(**inputs)
        await self.tick()
        self.set(**{name: 0 for name in inputs})

    def report(self, number, code, index):
        self.ctx.set(self.control.errors[number], {"valid": 1, "code": code, "index": index})

    def no_report(self, number):
        self.ctx.set(self.control.errors[number], {"valid": 0, "code": 0, "index": 0})

    def state(self):
        return self.get("busy"), self.get("done"), self.get("error")

    def error(self):
        return ErrorCode(self.get("error_code")), self.get("error_index")

    async def begin(self, **inputs):
        """Start, and go to where the program runs: one cycle of reset, then one of fetch_start."""
        self.set(bus_idle=1, progress=0, **inputs)
        await self.pulse(start=1)
        assert self.state() == (1, 0, 0)
        assert self.get("reset") and not self.get("fetch_start")
        await self.tick()
        assert self.get("fetch_start") and not self.get("reset")
        await self.tick()
        assert not self.get("fetch_start") and not self.get("reset") and not self.get("halt")
        self.set(bus_idle=0)


def run(bench):
    control = MachineControl(sources=3)

    async def testbench(ctx):
        ctx.set(control.irq_enable, 1)
        await bench(Host(ctx, control))

    simulate(control, testbench)


def test_done_and_clear():
    async def bench(host):
        await host.begin()
        await host.tick(50)
        assert host.get("counting")
        await host.pulse(finished=1)
        assert host.state() == (0, 1, 0) and not host.get("counting")
        await host.tick(5)
        assert host.state() == (0, 1, 0)
        await host.pulse(clear=1)
        assert host.state() == (0, 0, 0)
        assert host.resets == 1
    run(bench)


@pytest.mark.parametrize("ends", ["done", "error"])
@pytest.mark.parametrize("command", ["start", "clear"])
def test_interrupt_is_a_register_of_the_status(command, ends):
    """It follows no input without a clock, and a command that drops the status drops it at the same edge."""
    async def bench(host):
        await host.begin()
        if ends == "error":
            host.report(0, ErrorCode.ILLEGAL, 1)
        host.set(finished=1, bus_idle=1)
        for _ in range(10):
            assert not host.get("irq")
            await host.tick()
            host.no_report(0)
            if host.get("done") or host.get("error"):
                break
        host.set(finished=0)
        assert host.get("irq") and host.state() == (0, ends == "done", ends == "error")
        for enabled in (0, 1):
            host.set(irq_enable=enabled)
            assert host.get("irq") != enabled
            await host.tick()
            assert host.get("irq") == enabled
        host.set(**{command: 1})
        assert host.get("irq")
        await host.tick()
        assert not host.get("irq") and host.state() == (command == "start", 0, 0)
    run(bench)


def test_start_while_busy_is_ignored():
    async def bench(host):
        await host.begin()
        await host.pulse(start=1)
        await host.tick(5)
        assert host.resets == 1 and host.state() == (1, 0, 0)
        await host.pulse(finished=1)
        await host.begin()
        assert host.state() == (1, 0, 0), "the next start drops DONE"
    run(bench)


def test_first_error_wins_and_waits_for_the_bus():
    async def bench(host):
        await host.begin()
        host.report(2, ErrorCode.WRITE_RANGE, 7)
        await host.tick()
        host.report(0, ErrorCode.ILLEGAL, 9)        # later: does not count
        host.no_report(2)
        await host.tick(MachineControl.ERROR_CYCLES - 1)
        assert host.get("halt")
        host.no_report(0)
        await host.tick(100)
        assert host.state() == (1, 0, 0) and host.get("halt") and host.resets == 1
        host.set(bus_idle=1)
        await host.tick(3)
        assert host.state() == (0, 0, 1) and host.error() == (ErrorCode.WRITE_RANGE, 7)
        assert host.resets == 2 and not host.get("halt")
        await host.begin()
        assert host.error() == (ErrorCode.NONE, 0)
    run(bench)


def test_lowest_source_wins_within_a_cycle_and_over_done():
    async def bench(host):
        await host.begin()
        host.report(2, ErrorCode.WRITE_RANGE, 7)
        host.report(1, ErrorCode.BUFFER, 8)
        await host.pulse(finished=1)
        host.set(bus_idle=1)
        await host.tick(3)
        assert host.state() == (0, 0, 1) and host.error() == (ErrorCode.BUFFER, 8)
        await host.pulse(clear=1)
        assert host.state() == (0, 0, 0) and host.error() == (ErrorCode.NONE, 0)
    run(bench)


def test_errors_while_idle_do_not_count():
    async def bench(host):
        host.report(0, ErrorCode.TOKEN, 1)
        await host.tick(5)
        assert host.state() == (0, 0, 0) and host.error() == (ErrorCode.NONE, 0) and not host.get("halt")
    run(bench)


def test_stop_ends_without_an_error():
    async def bench(host):
        await host.begin()
        host.report(0, ErrorCode.ILLEGAL, 1)    # an earlier run's error must not come back
        await host.tick()
        host.no_report(0)
        host.set(bus_idle=1)
        await host.tick(3)
        assert host.state() == (0, 0, 1)
        await host.begin()
        await host.pulse(stop=1)
        assert host.get("halt")
        await host.tick(10)
        host.set(bus_idle=1)
        await host.tick(3)
        assert host.state() == (0, 0, 0) and host.error() == (ErrorCode.NONE, 0) and host.resets == 4
    run(bench)


@pytest.mark.parametrize("timeout", [1, 2, 100])
def test_timeout_counts_cycles_without_progress(timeout):
    async def bench(host):
        await host.begin(timeout=timeout, stalled_index=33)
        host.set(progress=1)
        await host.tick(3 * timeout)
        assert not host.get("halt")
        host.set(progress=0)
        await host.tick(timeout + MachineControl.ERROR_CYCLES - 2)
        assert not host.get("halt")
        await host.tick()
        assert host.get("halt")
        host.set(bus_idle=1)
        await host.tick(2)
        assert host.state() == (0, 0, 1) and host.error() == (ErrorCode.TIMEOUT, 33)
    run(bench)


def test_progress_puts_the_timeout_off():
    async def bench(host):
        await host.begin(timeout=10)
        for _ in range(20):
            await host.tick(9)
            await host.pulse(progress=1)
        assert not host.get("halt")
    run(bench)


def test_timeout_of_zero_never_comes():
    async def bench(host):
        await host.begin(timeout=0)
        await host.tick(1000)
        assert host.state() == (1, 0, 0) and not host.get("halt")
    run(bench)


def test_silent_bus_shows_the_error_but_stays_busy():
    async def bench(host):
        await host.begin(timeout=20, stalled_index=5)
        await host.tick(60)
        assert host.state() == (1, 0, 1) and host.error() == (ErrorCode.TIMEOUT, 5) and host.get("halt")
        await host.pulse(start=1)
        await host.tick(5)
        assert host.state() == (1, 0, 1) and host.resets == 1, "nothing can start while the bus owes answers"
        host.set(bus_idle=1)
        await host.tick(3)
        assert host.state() == (0, 0, 1)
    run(bench)


@pytest.mark.parametrize("clears", [False, True])
def test_late_answers_report_nothing_more(clears):
    async def bench(host):
        await host.begin(timeout=20, stalled_index=5)
        await host.tick(60)
        assert host.state() == (1, 0, 1)
        before = host.error()
        if clears:
            await host.pulse(clear=1)
            before = ErrorCode.NONE, 0
        for _ in range(3):                          # some answers come, then silence again
            await host.pulse(progress=1)
            await host.tick(60)
            assert host.state() == (1, 0, not clears) and host.error() == before
        host.set(bus_idle=1)
        await host.tick(3)
        assert host.state() == (0, 0, not clears) and host.error() == before and host.resets == 2
        await host.begin()
        await host.pulse(finished=1)
        assert host.state() == (0, 1, 0)
    run(bench)


def test_an_error_that_has_not_come_up_cannot_be_cleared():
    async def bench(host):
        await host.begin()
        host.report(1, ErrorCode.BUFFER, 8)
        await host.tick()
        host.no_report(1)
        await host.pulse(clear=1)
        assert host.state() == (1, 0, 0)
        host.set(bus_idle=1)
        await host.tick()
        await host.pulse(clear=1)
        assert host.state() == (0, 0, 1) and host.error() == (ErrorCode.BUFFER, 8)
        await host.pulse(clear=1)
        assert host.state() == (0, 0, 0) and host.error() == (ErrorCode.NONE, 0)
    run(bench)


def test_stop_on_a_silent_bus_is_a_timeout():
    async def bench(host):
        await host.begin(timeout=20, stalled_index=5)
        await host.pulse(stop=1)
        await host.tick(30)
        assert host.state() == (1, 0, 1) and host.error() == (ErrorCode.TIMEOUT, 5)
        host.set(bus_idle=1)
        await host.tick(3)
        assert host.state() == (0, 0, 1)
    run(bench)


def test_refuses_no_sources():
    with pytest.raises(ValueError, match="sources must be positive, not 0"):
        MachineControl(sources=0)
