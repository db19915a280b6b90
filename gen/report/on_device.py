"""A device's own counters beside those of the simulation that a report is of."""

from collections.abc import Sequence

from cores.arch.registers import ENGINE_STATES
from gen.report.document import Counter, OnDevice
from gen.run.counted import Counted
from gen.run.report import Measured

__all__ = ["difference", "on_device"]

_STATES = {
    "busy": "at work", "setup": "in setup", "wait_compute": "waiting for computing", "wait_store": "waiting for stores",
    "wait_ring": "waiting for room in a ring", "wait_bus": "waiting for the bus", "wait_load": "waiting for loads",
    "wait_weights": "waiting for weights", "wait_side": "waiting for side data"}


def on_device(found: Counted, measured: Sequence[Measured]) -> OnDevice:
    """``measured``: the segments of the accelerator, as simulated."""
    counters = []
    for engine, states in enumerate(ENGINE_STATES.items()):
        name, codes = states
        for code, state in enumerate(codes[1:], 1):
            simulated = sum(int(one.record.counts[engine, code].sum()) for one in measured)
            counters.append(Counter(engine=name, state=state, simulated=simulated,
                                    counted=found.counters[f"{name}_{state}"]))
    return OnDevice(device=found.device, samples=len(found.cycles), cycles=found.mean, fewest=min(found.cycles),
                    most=max(found.cycles), counters=counters)


def difference(one: OnDevice, cycles: int, simulation: str) -> str:
    """How the device's run differs from the ``simulation`` of so many ``cycles``, in words."""
    more = one.cycles - cycles
    many = f"{one.samples:,} inference{'s' * (one.samples > 1)}"
    if not more and all(counter.counted == counter.simulated for counter in one.counters):
        return f"On {one.device}, {many}: {one.cycles:,.0f} cycles, and all counters as in {simulation}."
    words = f"On {one.device}, {many}: {one.cycles:,.0f} cycles each, {_share(more, cycles)} {simulation}"
    most = max(one.counters, key=lambda counter: abs(counter.counted - counter.simulated))
    return (f"{words}; the largest difference is the {most.engine} engine {_state(most.state)}, "
            f"{most.counted:,.0f} instead of {most.simulated:,} cycles.")


def _share(more: float, cycles: int) -> str:
    if not more:
        return "as in"
    return f"{100 * abs(more) / cycles:.2f} % {'more' if more > 0 else 'fewer'} than in"


def _state(state: str) -> str:
    return _STATES[state]
