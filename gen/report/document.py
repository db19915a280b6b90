"""What a report says: one statement of its types, which the page draws and ``--json`` prints."""

from dataclasses import dataclass, field
from typing import Annotated, Any

from msgspec import Meta

from gen.report.numbers import Count, Cycle, Decibels, Digest, Megahertz, Positive, Rate, Share
from gen.report.timeline import Timeline

__all__ = [
    "FORMAT", "Area", "Beside", "Counter", "Edge", "Layer", "Machine", "MemoryMap", "Node", "Noise", "OnDevice",
    "Repeat", "Report", "Roofline", "Span", "Way",
]

#: Of documents; a page draws its own.
FORMAT = 1


@dataclass(frozen=True, kw_only=True)
class Area:
    """A resource of the device: how many the machine takes, None where that is not known, and how many there are."""

    resource: str
    used: Annotated[float, Meta(ge=0)] | None
    available: Count


@dataclass(frozen=True, kw_only=True)
class Machine:
    """``area_known``: how, in words. ``clock``: how the rate is known, as `boards.clock.Basis` has it."""

    board: str
    board_title: str
    part: str
    macs: Positive
    features: list[str]
    beat_bytes: Positive
    digest: Digest
    config: dict[str, Any]
    clock_mhz: Megahertz
    clock: str
    area_known: str
    area: list[Area]


@dataclass(frozen=True, kw_only=True)
class Way:
    """A way to compute a layer: its ``cost`` (estimated cycles and a little for traffic), or why it is not one."""

    mode: str
    cost: Annotated[float, Meta(ge=0)] | None
    refused: str


@dataclass(frozen=True, kw_only=True)
class Layer:
    """A layer of the accelerator. ``nodes``: of the ONNX model. ``shape``: (C, H, W) of its result. ``why``: in words,
    what its mode is, and why it is computed so. ``ways``: those that the compiler compared. The cycles are those of
    `sim.profile.LayerTiming`."""

    name: str
    op: str
    mode: str
    segment: Count
    nodes: list[str]
    reads: list[str]
    output: str
    shape: list[Positive]
    why: str
    ways: list[Way]
    cycles: Cycle
    macs: Count
    useful_macs: Count
    utilisation: Share
    dram_bytes: Count
    useful: Cycle
    idle_pixels: Cycle
    idle_lanes: Cycle
    stalls: dict[str, Cycle]
    lane_macs: Count = 0
    slots: Count = 0
    #: From and to (`gen.run.energy_ratio`); empty where it is not known.
    energy_share: list[Share] = field(default_factory=list)


@dataclass(frozen=True, kw_only=True)
class Node:
    """Of the drawn graph. ``kind``: input, output, layer (``layer``: its index) or host (``layer``: of the host
    segment). ``rank`` and ``column``: its place, from 0, in the drawing's grid."""

    name: str
    kind: Annotated[str, Meta(pattern="^(input|output|layer|host)$")]
    layer: int
    rank: Count
    column: Count


@dataclass(frozen=True, kw_only=True)
class Edge:
    """From node to node, by index."""

    source: Count
    target: Count
    tensor: str


@dataclass(frozen=True, kw_only=True)
class Roofline:
    """``macs``: the most a cycle. ``bytes_of_memory``: a cycle, of the memory that the report was measured with, for
    long bursts as its data sheet has them; ``bytes_of_port``: of the port, reads and writes together. Of an ideal
    memory both are a beat each way."""

    macs: Positive
    bytes_of_port: Rate
    bytes_of_memory: Rate


@dataclass(frozen=True, kw_only=True)
class Span:
    """A tensor's bytes from ``offset`` of the data region, or of the input buffer, and the layers from the one that
    writes it (-1: there from the start) to the last that reads it."""

    name: str
    offset: Count
    size: Count
    first: int
    last: int


@dataclass(frozen=True, kw_only=True)
class MemoryMap:
    """Of a segment. ``kept``: results that never leave the chip. ``constants``: bytes of weights and parameters."""

    segment: Count
    size: Count
    constants: Count
    tensors: list[Span]
    kept: list[str]


@dataclass(frozen=True, kw_only=True)
class Noise:
    """A layer's result against the same model with nothing rounded between layers, in dB; None: no difference."""

    layer: Count
    sqnr_db: Decibels | None


@dataclass(frozen=True, kw_only=True)
class Beside:
    """A layer's values beside onnxruntime's: how many differ, the largest difference in int8 steps, and the largest
    that rounding explains of any."""

    layer: str
    tensor: str
    values: Count
    differing: Count
    largest: Count
    allowed: Count


@dataclass(frozen=True, kw_only=True)
class Counter:
    """Cycles of an inference that an engine spent in a state, as simulated and as counted by a device."""

    engine: str
    state: str
    simulated: Count
    counted: Annotated[float, Meta(ge=0, lt=1 << 53)]


@dataclass(frozen=True, kw_only=True)
class OnDevice:
    """Inferences that a device made. ``device``: as --target named it; ``cycles``: of an inference on average,
    ``fewest`` and ``most``: of the ``samples``."""

    device: str
    samples: Positive
    cycles: Annotated[float, Meta(ge=1, lt=1 << 53)]
    fewest: Positive
    most: Positive
    counters: list[Counter]


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
    there is none. ``host``: node -> why it is on the processor. ``on_device``: of a run there, if one is given.
    ``onnxruntime_words``: what the values beside its are of, or why there are none."""

    format: int
    name: str
    measured: str
    memory: str
    findings: list[str]
    machine: Machine
    total: dict[str, Any]
    layers: Annotated[list[Layer], Meta(min_length=1)]
    nodes: Annotated[list[Node], Meta(min_length=1)]
    edges: list[Edge]
    timeline: Timeline
    roofline: Roofline
    memory_maps: list[MemoryMap]
    noise: list[Noise]
    noise_words: str
    host: dict[str, str]
    repeat: Repeat
    on_device: OnDevice | None = None
    onnxruntime: list[Beside] = field(default_factory=list)
    onnxruntime_words: str = ""
