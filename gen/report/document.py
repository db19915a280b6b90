"""What a report says: one statement of its types, which the page draws and ``--json`` prints."""

from dataclasses import dataclass
from typing import Any

from gen.report.timeline import Timeline

__all__ = ["FORMAT", "Area", "Edge", "Layer", "Machine", "MemoryMap", "Noise", "Node", "Repeat", "Report", "Roofline",
           "Span", "Way"]

#: Of documents; a page draws its own.
FORMAT = 1


@dataclass(frozen=True, kw_only=True)
class Area:
    """A resource of the device: how many the machine takes, None where that is not known, and how many there are."""

    resource: str
    used: float | None
    available: int


@dataclass(frozen=True, kw_only=True)
class Machine:
    """``area_known``: how, in words. ``clock``: how the rate is known, as `boards.clock.Basis` has it."""

    board: str
    board_title: str
    part: str
    macs: int
    features: list[str]
    beat_bytes: int
    digest: int
    config: dict[str, Any]
    clock_mhz: float
    clock: str
    area_known: str
    area: list[Area]


@dataclass(frozen=True, kw_only=True)
class Way:
    """A way to compute a layer: its ``cost`` (estimated cycles and a little for traffic), or why it is not one."""

    mode: str
    cost: float | None
    refused: str


@dataclass(frozen=True, kw_only=True)
class Layer:
    """A layer of the accelerator. ``nodes``: of the ONNX model. ``shape``: (C, H, W) of its result. ``why``: in words,
    why it is computed in its mode. ``ways``: those that the compiler compared. The cycles are those of
    `sim.profile.LayerTiming`."""

    name: str
    op: str
    mode: str
    segment: int
    nodes: list[str]
    reads: list[str]
    output: str
    shape: list[int]
    why: str
    ways: list[Way]
    cycles: int
    macs: int
    useful_macs: int
    utilisation: float
    dram_bytes: int
    useful: int
    idle_pixels: int
    idle_lanes: int
    stalls: dict[str, int]


@dataclass(frozen=True, kw_only=True)
class Node:
    """Of the drawn graph. ``kind``: input, output, layer (``layer``: its index) or host (``layer``: of the host
    segment). ``rank`` and ``column``: its place, from 0, in the drawing's grid."""

    name: str
    kind: str
    layer: int
    rank: int
    column: int


@dataclass(frozen=True, kw_only=True)
class Edge:
    """From node to node, by index."""

    source: int
    target: int
    tensor: str


@dataclass(frozen=True, kw_only=True)
class Roofline:
    """``macs``: the most a cycle. ``bytes_of_memory``: a cycle, of the memory that the report was measured with, for
    long bursts as its data sheet has them; ``bytes_of_port``: of the port, reads and writes together. Of an ideal
    memory both are a beat each way."""

    macs: int
    bytes_of_port: float
    bytes_of_memory: float


@dataclass(frozen=True, kw_only=True)
class Span:
    """A tensor's bytes from ``offset`` of the data region, or of the input buffer, and the layers from the one that
    writes it (-1: there from the start) to the last that reads it."""

    name: str
    offset: int
    size: int
    first: int
    last: int


@dataclass(frozen=True, kw_only=True)
class MemoryMap:
    """Of a segment. ``kept``: results that never leave the chip. ``constants``: bytes of weights and parameters."""

    segment: int
    size: int
    constants: int
    tensors: list[Span]
    kept: list[str]


@dataclass(frozen=True, kw_only=True)
class Noise:
    """A layer's result against the same model with nothing rounded between layers, in dB; None: no difference."""

    layer: int
    sqnr_db: float | None


@dataclass(frozen=True, kw_only=True)
class Repeat:
    """What is needed to make the report again. ``commit``: "" where the sources are in no Git checkout."""

    command: str
    version: str
    commit: str
    python: str
    model_sha256: str


@dataclass(frozen=True, kw_only=True)
class Report:
    """Of one inference of a model on a machine. ``measured``: cycles (time model) or rtl. ``memory``: a board's, or ""
    for an ideal one. ``findings``: in words, the most important first. ``noise_words``: what the noise is of, or why
    there is none. ``host``: node -> why it is on the processor."""

    format: int
    name: str
    measured: str
    memory: str
    findings: list[str]
    machine: Machine
    total: dict[str, Any]
    layers: list[Layer]
    nodes: list[Node]
    edges: list[Edge]
    timeline: Timeline
    roofline: Roofline
    memory_maps: list[MemoryMap]
    noise: list[Noise]
    noise_words: str
    host: dict[str, str]
    repeat: Repeat
