"""The report of a model on a machine."""

import hashlib
import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from boards.board import Board
from boards.clock import Clock
from boards.presets import preset_of
from cores.config import PURPOSES, NpuConfig
from gen.explore.faster import Faster
from gen.hw.area import area_of
from gen.hw.remembered import synthesis_of
from gen.ir.graph import Layer as GraphLayer
from gen.name import called
from gen.report.document import (
    FORMAT,
    Area,
    Beside,
    Layer,
    Machine,
    MemoryMap,
    Noise,
    Repeat,
    Report,
    Roofline,
    Span,
    Way,
)
from gen.report.drawing import graph_of
from gen.report.on_device import difference, on_device
from gen.report.sheet import commit, version
from gen.report.timeline import timeline_of
from gen.report.ways import meaning_of, reason_of, ways_of
from gen.run.application import Application
from gen.run.counted import Counted
from gen.run.report import Measured, profile_of
from gen.run.workload import Workload
from npudriver.files import read_file

__all__ = ["Subject", "many_causes", "model_digest", "report_of"]

_CAUSES = {"idle_pixels": "idle pixel lanes", "idle_lanes": "idle channel lanes", "wait_weights": "weights",
           "wait_load": "activations to be loaded", "wait_store": "results to be stored",
           "short_steps": "steps shorter than the pipeline", "setup": "setup between instructions",
           "idle": "the program's start and end"}


@dataclass(frozen=True)
class _Help:
    """``why`` cycles are lost; what can be done, ``ways`` that ``do`` so, and what is ``left`` without any of them. A
    way goes with the unit that it would add, or with what else of the machine it would have chosen for the model."""

    why: str
    ways: Sequence[tuple[str, str]] = ()
    do: str = ""
    left: str = ""

    def words(self, features: Sequence[str] = (), chosen: str = "") -> str:
        """Without the ways that a machine has gone: of these ``features``, and `Application.chosen`."""
        gone = {*features, *({"": (), "units": ("units", "fusion"), "machine": ("units", "fusion", "machine")}[chosen])}
        ways = [way for way, adds in self.ways if adds not in gone]
        if not ways:
            return f"{self.why}; {self.left}"
        listed = " or ".join([", ".join(ways[:-1]), ways[-1]] if len(ways) > 1 else ways)
        return f"{self.why}; {listed}{self.do and ' ' + self.do}"


_ROOM = "results that stay on the chip (--features fusion)", "fusion"
_FASTER_MEMORY = "a faster memory", ""
_HELPS = {
    "idle_pixels": _Help("rows are no multiple of the pixel lanes", left=(
        "fewer of these (--pixel-lanes), or an input of another size, lose less")),
    "idle_lanes": _Help(
        "layers have fewer channels than the array has lanes, or are depthwise",
        [("other lanes (--for MODEL)", "machine"), ("units (--features auto)", "units")], "use them",
        "lanes and units are those that suit the model best; one of fewer --macs loses less"),
    "wait_weights": _Help(
        "memory brings weights too slowly for the work that they are for",
        [("pruned ones (--density)", ""), ("a wider bus", ""), _FASTER_MEMORY], "bring them sooner"),
    "wait_load": _Help(
        "memory brings activations too slowly",
        [("more room on the chip (--input-depth)", ""), _ROOM, _FASTER_MEMORY], "saves time"),
    "wait_store": _Help("memory takes results too slowly", [_ROOM, _FASTER_MEMORY], "saves time"),
    "short_steps": _Help("steps have too few words of weights",
                         left="a machine of fewer --macs loses little here"),
    "setup": _Help("layers are small for the machine", left="one of fewer --macs loses little here"),
    "idle": _Help("the model is small", left="nothing in it is worth a change")}
#: Units that a report names.
_UNITS = 2
#: Share of a total from which a finding is worth a line.
_WORTH = 0.1
#: Share of the multipliers in use from which on nothing else is worth a try.
_BUSY = 0.85


@dataclass(frozen=True, eq=False, kw_only=True)
class Subject:
    """What a report is of. ``measured``: of the segments of the accelerator; ``host_seconds``: of the processor's;
    ``target``: what measured them; ``memory``: None for an ideal one; ``faster``: units that would help;
    ``counted``: of a run on a device; ``onnxruntime``: values beside its; ``answers``: how many are right."""

    application: Application
    path: Path
    measured: Sequence[Measured]
    host_seconds: Sequence[float]
    target: str
    board: Board
    clock: Clock
    memory: Board | None
    command: str
    noise: Sequence[Noise] = ()
    noise_words: str = ""
    faster: Sequence[Faster] = ()
    counted: Counted | None = None
    onnxruntime: Sequence[Beside] = ()
    onnxruntime_words: str = ""
    answers: str = ""
    host: Mapping[str, str] = field(default_factory=dict)


def report_of(subject: Subject) -> Report:
    """The whole document. Raises CompileError for what cannot be compiled."""
    profile = profile_of(subject.measured, subject.clock)
    layers = _layers(subject.application, profile["layers"])
    nodes, edges = graph_of(subject.application)
    records, seconds = iter(subject.measured), iter(subject.host_seconds)
    parts = [next(records) if isinstance(segment, Workload) else next(seconds)
             for segment in subject.application.segments]
    findings = _findings(subject, profile["total"], layers) + ([subject.answers] if subject.answers else [])
    device = None if subject.counted is None else on_device(subject.counted, subject.measured)
    if device is not None:
        findings.append(difference(device, profile["total"]["cycles"], _simulation(subject)))
    return Report(
        format=FORMAT, name=subject.application.name, measured=subject.target,
        memory=subject.memory.name if subject.memory else "", findings=findings, on_device=device,
        onnxruntime=list(subject.onnxruntime), onnxruntime_words=subject.onnxruntime_words,
        machine=_machine(subject), total=profile["total"], layers=layers, nodes=nodes, edges=edges,
        timeline=timeline_of(parts, subject.clock.mhz), roofline=_roofline(subject),
        memory_maps=[_memory_map(number, segment) for number, segment in enumerate(subject.application.segments)
                     if isinstance(segment, Workload)],
        noise=list(subject.noise), noise_words=subject.noise_words, host=dict(subject.host), repeat=_repeat(subject))


def _layers(application: Application, timings: Sequence[dict[str, Any]]) -> list[Layer]:
    found = []
    timing = iter(timings)
    for number, segment in enumerate(application.segments):
        if not isinstance(segment, Workload):
            continue
        ways = ways_of(segment)
        by_output = {layer.output: layer for layer in segment.graph.layers}
        for info in segment.program.layers:
            layer = by_output.get(info.output)
            own: list[Way] = ways.get(info.output, [])
            found.append(Layer(
                segment=number, nodes=list(layer.onnx_nodes) if layer else [],
                reads=list(layer.reads) if layer else [info.input], output=info.output,
                shape=list(segment.graph.tensors[info.output].shape), ways=own, why="; ".join(filter(None, (
                    meaning_of(info.mode, type(layer) if layer else GraphLayer), reason_of(info.mode, own)))),
                **next(timing)))
    return found


def _findings(subject: Subject, total: Mapping[str, Any], layers: Sequence[Layer]) -> list[str]:
    cycles = max(1, total["cycles"])
    config = subject.measured[0].program.config
    help_ = {cause: one.words(config.features, subject.application.chosen) for cause, one in _HELPS.items()}
    found = [_where(subject)]
    most = max(layers, key=lambda layer: layer.cycles)
    found.append(f"{most.name} costs most: {100 * most.cycles / cycles:.0f} % of the cycles, "
                 f"{100 * most.utilisation:.0f} % of its multipliers in use{_lost(most)}.")
    lost = {name: total[name] for name in ("idle_pixels", "idle_lanes")} | total["stalls"]
    streams = sum(layer.cycles for layer in layers if layer.mode == "stochastic")
    if streams >= _WORTH * cycles:
        found.append(f"{100 * streams / cycles:.0f} % of all cycles are layers of stochastic streams, a product of "
                     "which takes as many cycles as a stream has bits: shorter streams (--stochastic), or exact "
                     "layers, take less.")
    ranked = [(cause, spent) for cause, spent in sorted(lost.items(), key=lambda item: -item[1])
              if not (cause == "idle_lanes" and streams >= spent)]
    large = [(cause, spent) for cause, spent in ranked[:2] if spent >= _WORTH * cycles]
    found += [f"{100 * spent / cycles:.0f} % of all cycles go to {_CAUSES[cause]}: {help_[cause]}."
              for cause, spent in large]
    found += [f"By trial on the time model, {one}." for one in subject.faster[:_UNITS]]
    if len(found) == 2 and total["utilisation"] < _BUSY and ranked and ranked[0][1]:
        found.append(many_causes(ranked, cycles, help_))
        cause, spent = _largest_loss(most)
        if cause != ranked[0][0] and spent >= _WORTH * most.cycles:
            found.append(f"In {most.name} it is {_CAUSES[cause]}: {help_[cause]}.")
    if subject.application.chosen:
        found.append("The machine's units were chosen for this model: no other one pays.")
    if total["utilisation"] >= _BUSY and not streams:
        pruned = " or pruned weights (--density 0.25 to try, the command prune in earnest)"
        found.append(f"The multipliers have work {100 * total['utilisation']:.0f} % of the time: more of them (--macs)"
                     f"{pruned if config.groups_dense > 1 else ''} are what makes it faster.")
    return found


def many_causes(ranked: Sequence[tuple[str, int]], cycles: int, help_: Mapping[str, str]) -> str:
    """What is said where no cause takes much by itself. ``ranked``: causes and their cycles, the largest first;
    ``help_``: against each."""
    (cause, spent), *others = ((cause, spent) for cause, spent in ranked if spent)
    rest = ", ".join(f"{100 * more / cycles:.0f} % to {_CAUSES[other]}" for other, more in others[:2]
                     if more >= _WORTH / 5 * cycles)
    return (f"No single cause takes much: {100 * spent / cycles:.0f} % of all cycles go to {_CAUSES[cause]}"
            f"{f', {rest}' if rest else ''}. The first: {help_[cause]}.")


def _simulation(subject: Subject) -> str:
    target = "the simulated Verilog" if subject.target == "rtl" else "the time model"
    return f"{target} on {f'the memory of {subject.memory.name}' if subject.memory else 'an ideal memory'}"


def _largest_loss(layer: Layer) -> tuple[str, int]:
    """The cause, and its cycles."""
    lost = {"idle_pixels": layer.idle_pixels, "idle_lanes": layer.idle_lanes, **layer.stalls}
    return max(lost.items(), key=lambda item: item[1])


def _lost(layer: Layer) -> str:
    cause, spent = _largest_loss(layer)
    if layer.mode == "stochastic":      # whose lanes are idle in all bits but one
        return ""
    return f"; most of the rest goes to {_CAUSES[cause]}" if spent >= _WORTH * layer.cycles else ""


def _where(subject: Subject) -> str:
    count = len(subject.host_seconds)
    if not count:
        return "All of the model runs on the accelerator."
    return (f"The processor runs {count} part{'s' if count > 1 else ''} of the model: "
            f"{1000 * sum(subject.host_seconds):.2f} ms on the computer that made this report, of random values; a "
            "board's processor may take many times as long.")


def _machine(subject: Subject) -> Machine:
    config, board = subject.measured[0].program.config, subject.board
    found = synthesis_of(board, config)
    estimated = area_of(config, board.family)
    totals = found.totals if found else estimated.totals
    words = ("estimated by Yosys's synthesis" if found else
             f"{'' if estimated.error == 0 else 'estimated, '}{estimated.known}: `{called()} build --board "
             f"{board.name} {_options(board, config)} --synth` synthesises it, and reports remember that")
    return Machine(
        board=board.name, board_title=board.title, part=board.part, macs=config.macs, features=list(config.features),
        beat_bytes=config.beat_bytes, digest=config.digest, config=config.to_dict(), clock_mhz=subject.clock.mhz,
        clock=subject.clock.basis, area_known=words,
        area=[Area(resource=name, used=totals.get(name), available=count) for name, count in board.resources.items()])


def _options(board: Board, config: NpuConfig) -> str:
    """Those of ``build`` that describe the machine; the file that it writes, for one that is no preset with
    features."""
    purpose = preset_of(board, config)
    if purpose is None:
        return "--config config.json"
    purposes = "" if purpose == PURPOSES[0] else f" --for {purpose}"
    features = f" --features {','.join(config.features)}" if config.features else ""
    return f"--macs {config.macs}{purposes}{features}"


def _roofline(subject: Subject) -> Roofline:
    config, board = subject.measured[0].program.config, subject.memory
    if board is None:       # a beat each way in every cycle
        return Roofline(macs=config.macs, bytes_of_port=2 * config.beat_bytes, bytes_of_memory=2 * config.beat_bytes)
    port = sum(config.beat_bytes / board.port_cycles(config.beat_bits, write=write) for write in (False, True))
    return Roofline(macs=config.macs, bytes_of_port=port,
                    bytes_of_memory=board.memory.sustained / (subject.clock.mhz * 1e6))


def _memory_map(number: int, segment: Workload) -> MemoryMap:
    program, graph = segment.program, segment.graph
    beat = program.config.beat_bytes
    by_output = {layer.output: layer for layer in graph.layers}
    writes = {info.output: at for at, info in enumerate(program.layers)}
    last: dict[str, int] = dict.fromkeys(program.outputs.values(), len(program.layers))
    for at, info in enumerate(program.layers):
        layer = by_output.get(info.output)
        for name in (*(layer.reads if layer else ()), info.input):
            last[name] = max(last.get(name, -1), at)
    spans = [Span(name=name, offset=place.offset * beat, size=place.beats(beat) * beat, first=writes.get(name, -1),
                  last=max(last.get(name, -1), writes.get(name, -1)))
             for name, place in program.tensors.items()]
    kept = [info.output for info in program.layers if info.output not in program.tensors]
    return MemoryMap(segment=number, size=program.data_beats * beat, constants=len(program.constants),
                     tensors=spans, kept=kept)


def _repeat(subject: Subject) -> Repeat:
    return Repeat(command=subject.command, version=version(), commit=commit(), python=platform.python_version(),
                  model_sha256=model_digest(subject.path))


def model_digest(path: Path) -> str:
    """SHA-256 of a model's or a program's file."""
    return hashlib.sha256(read_file(path)).hexdigest()
