"""A report's timeline as a trace: the JSON of Chrome, which Perfetto and Speedscope open."""

from typing import Any

from gen.report.columns import unpack
from gen.report.document import Report

__all__ = ["trace_of"]


def trace_of(report: Report) -> dict[str, Any]:
    """Trace events in microseconds at the report's clock; the cycles of states are arguments of each."""
    timeline, mhz = report.timeline, report.machine.clock_mhz
    opcode, layer = unpack(timeline.opcode), unpack(timeline.layer)
    events: list[dict[str, Any]] = [_named("process", 0, report.name)]

    def event(track: int, name: str, start: int, length: int, **arguments: Any) -> None:
        events.append({"name": name, "ph": "X", "pid": 1, "tid": track, "ts": start / mhz, "dur": length / mhz,
                       "args": {"cycle": start, "cycles": length, **arguments}})

    events.append(_named("thread", 1, "layer"))
    for owner, start, length in zip(*(unpack(column).tolist() for column in (
            timeline.owner, timeline.owner_start, timeline.owner_length)), strict=True):
        event(1, report.layers[owner].name if owner >= 0 else "no layer", start, length)
    for track, (name, engine) in enumerate(timeline.engines.items(), 2):
        events.append(_named("thread", track, name))
        states = {state: unpack(column) for state, column in engine.states.items()}
        for at, (index, start, length) in enumerate(zip(*(unpack(column).tolist() for column in (
                engine.index, engine.start, engine.length)), strict=True)):
            spent = {state: int(column[at]) for state, column in states.items() if column[at]}
            whose = {} if layer[index] < 0 else {"layer": report.layers[layer[index]].name}
            event(track, timeline.opcodes[opcode[index]], start, length, instruction=index, **whose, **spent)
    if timeline.host:
        events.append(_named("thread", 9, "processor"))
        for number, span in enumerate(timeline.host, 1):
            event(9, f"processor, part {number}", span.start, span.length)
    return {"traceEvents": events, "displayTimeUnit": "ns"}


def _named(what: str, track: int, name: str) -> dict[str, Any]:
    return {"name": f"{what}_name", "ph": "M", "pid": 1, "tid": track, "args": {"name": name}}
