"""Whether the parts of a report fit each other: what a page looks up is there."""

import base64
from dataclasses import dataclass

import msgspec
import numpy as np

from cores.arch.registers import ENGINE_STATES
from gen.report.columns import unpack
from gen.report.document import MemoryMap, Report
from gen.report.numbers import Count, Cycle, Positive, Rate, Share
from gen.report.timeline import HostSpan, Segment, Timeline

__all__ = ["require_fitting"]

#: Of a layer, those that a page names.
_STALLS = frozenset({"wait_weights", "wait_load", "wait_store", "short_steps", "setup", "idle"})


@dataclass(frozen=True, kw_only=True)
class _Total:
    cycles: Positive
    utilisation: Share
    fps: Rate
    dram_bytes: Count
    stalls: dict[str, Cycle]


def require_fitting(report: Report) -> None:
    """Raises ValueError, in words, for the first thing that does not."""
    total = msgspec.convert(report.total, _Total)
    for layer in report.layers:
        _require(layer.stalls.keys() == _STALLS, f"layer {layer.name} has stalls of other causes")
        spent = layer.useful + layer.idle_pixels + layer.idle_lanes + sum(layer.stalls.values())
        _require(spent == layer.cycles, f"the parts of layer {layer.name} are {spent} cycles of {layer.cycles}")
        _require(len(layer.energy_share) in (0, 2), f"layer {layer.name} has no range of energy")
    _require(total.cycles == sum(layer.cycles for layer in report.layers), "the layers' cycles are not the total")
    _require_graph(report)
    for one in report.noise:
        _require(one.layer < len(report.layers), f"noise of layer {one.layer}, which is not there")
    for memory in report.memory_maps:
        _require_memory(memory, sum(layer.segment == memory.segment for layer in report.layers))
    if report.on_device is not None:
        states = [(engine, state) for engine, states in ENGINE_STATES.items() for state in states[1:]]
        _require([(one.engine, one.state) for one in report.on_device.counters] == states,
                 "the device's counters are not those of a machine")
    _require_timeline(report.timeline, len(report.layers), total.cycles)


def _require(holds: object, otherwise: str) -> None:
    if not holds:
        raise ValueError(otherwise)


def _require_graph(report: Report) -> None:
    many = {"layer": len(report.layers), "host": len(report.timeline.host)}
    for node in report.nodes:
        if node.kind in many:
            _require(0 <= node.layer < many[node.kind], f"node {node.name} is no {node.kind} that is there")
        _require(max(node.rank, node.column) < len(report.nodes), f"node {node.name} has no place in the drawing")
    for edge in report.edges:
        _require(max(edge.source, edge.target) < len(report.nodes),
                 f"edge {edge.source} to {edge.target} of {len(report.nodes)} nodes")


def _require_memory(memory: MemoryMap, layers: int) -> None:
    where = f"memory of segment {memory.segment}"
    _require(layers, f"{where}, which has no layer")
    _require(memory.constants <= memory.size, f"{where}: more constants than bytes")
    for one in memory.tensors:
        _require(-1 <= one.first <= one.last <= layers and one.first < layers,
                 f"{where}: {one.name} lives from layer {one.first} to {one.last} of {layers}")


def _require_timeline(line: Timeline, layers: int, cycles: int) -> None:
    """``cycles``: those of the accelerator."""
    opcode, layer = _column(line.opcode, "opcode"), _column(line.layer, "layer")
    _require_within(opcode, 0, len(line.opcodes), "opcode")
    _require_within(layer, -1, layers, "layer")
    _require(len(opcode) == len(layer), "the timeline has layers of other instructions")
    owner = _column(line.owner, "owner")
    _require_within(owner, -1, layers, "owner")
    _require_spans(_column(line.owner_start, "owner_start"), _column(line.owner_length, "owner_length"), line.cycles,
                   len(owner), "owners")
    _require(tuple(line.engines) == tuple(ENGINE_STATES), "the timeline has other engines than a machine")
    for name, engine in line.engines.items():
        index = _column(engine.index, name)
        _require_within(index, 0, len(opcode), f"instruction of {name}")
        _require_spans(_column(engine.start, name), _column(engine.length, name), line.cycles, len(index), name)
        _require(tuple(engine.states) == ENGINE_STATES[name][1:], f"{name} has other states than a machine's")
        for state, packed in engine.states.items():
            spent = _column(packed, state)
            _require(len(spent) == len(index), f"{state} of {name} is of other instructions")
            _require_within(spent, 0, line.cycles + 1, f"{state} of {name}")
    for way in (line.bus.read, line.bus.write):
        beats = _column(way, "bus")
        _require(len(beats) == -(-line.cycles // line.bus.cycles), "the bus has other steps than the timeline")
        _require_within(beats, 0, 1 << 31, "beats")
    spans: list[Segment | HostSpan] = [*line.segments, *line.host]
    _require(all(one.start + one.length <= line.cycles for one in spans), "a segment ends after the timeline")
    _require(sum(one.length for one in spans) == line.cycles, "the segments are not the timeline")
    _require(sum(one.length for one in line.segments) == cycles, "the segments' cycles are not the total")


def _column(packed: str, name: str) -> np.ndarray:
    octets = base64.b64decode(packed)
    _require(not octets or octets[-1] < 128, f"column {name} ends within a number")
    return unpack(packed)


def _require_within(values: np.ndarray, first: int, end: int, name: str) -> None:
    wrong = values[(values < first) | (values >= end)]
    _require(not len(wrong), f"{name} {wrong[:1].sum()} of the timeline is not in {first}..{end - 1}")


def _require_spans(start: np.ndarray, length: np.ndarray, cycles: int, many: int, name: str) -> None:
    _require(len(start) == len(length) == many, f"columns of {name} have different lengths")
    _require_within(start, 0, cycles, f"start of {name}")
    _require_within(start + length, 1, cycles + 1, f"end of {name}")
    _require_within(length, 0, cycles + 1, f"length of {name}")
