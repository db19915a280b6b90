"""What Winograd gains and what it costs: VGG16's layers against the direct form, and the narrow form's errors."""

import errno
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from cores.arch.numerics import POSITIONS
from cores.config import NpuConfig
from gen.bench.comparisons import Case, Comparison, Goal, compare
from gen.bench.layers import LayerBenchmark, measure_layer
from gen.files.photographs import read_photographs
from gen.ir import reference
from gen.ir.graph import Conv, Graph
from gen.mapping.winograd.fit_shifts import fit_shifts
from gen.mapping.winograd.narrow import SAFE_SHIFTS, has_tiles, narrow_graph
from gen.onnx.importer import load_model
from gen.options import CompileOptions
from sim.golden import run_layer
from sim.rtl.machine import RtlMachine

__all__ = ["EXACT", "NARROW", "VGG16", "errors", "gains", "resnet8_errors"]

#: 256 int8 MACs on 128 multipliers of 27 bits; and as many multipliers of 10 x 12 bits. A window of 7x7 tiles has 49
#: words there, which at 24 beats of weights a step leaves the bus half of its time.
NARROW = NpuConfig.preset(256, winograd=1)
EXACT = NpuConfig(oc_lanes=32, ic_lanes=16, nnz_lanes=8, pixel_lanes=1, acc_width=29, acc_depth=1024, winograd=2)

#: How many times as fast as the direct form on the same machine, from start to done.
_GOAL = 2.0

#: VGG16's dense 3x3 layers; those of the same shape are here once.
VGG16: tuple[LayerBenchmark, ...] = tuple(
    LayerBenchmark(name=name, channels=channels, outputs=outputs, size=size, kernel=3, goal=_GOAL)
    for name, channels, outputs, size in (
        ("conv1_2", 64, 64, 224), ("conv2_1", 64, 128, 112), ("conv2_2", 128, 128, 112), ("conv3_1", 128, 256, 56),
        ("conv3_2, conv3_3", 256, 256, 56), ("conv4_1", 256, 512, 28), ("conv4_2, conv4_3", 512, 512, 28),
        ("conv5_1, conv5_2, conv5_3", 512, 512, 14)))


def gains() -> list[Case]:
    """VGG16's layers, direct and as Winograd tiles, on a machine that is `NARROW`, `EXACT` or like them."""
    return [Case(layer.name, partial(_gain, layer)) for layer in VGG16]


def _gain(layer: LayerBenchmark, machine: RtlMachine) -> Comparison:
    direct = measure_layer(layer, machine=machine, options=CompileOptions(winograd="off"))
    tiles = measure_layer(layer, machine=machine, options=CompileOptions(
        winograd="narrow" if machine.config.winograd == 1 else "exact"))
    # 16 products for four pixels instead of 36.
    return compare(layer.name, direct, tiles, tiles.ideal * POSITIONS / 36, goal=Goal("times", _GOAL))


@dataclass(frozen=True)
class FormErrors:
    """The narrow form of a network against the direct one. SQNR in dB, of the layer's output in int8.

    ``layers``: name -> (SQNR of the layer by itself on exact inputs, SQNR with all layers before it narrow too).
    ``labels``: samples whose label is another one, of ``samples``; ``right``: labels that are right, before and after.
    """

    layers: Mapping[str, tuple[float, float]]
    labels: int
    samples: int
    right: tuple[int, int] | None = None

    def rows(self) -> list[dict[str, Any]]:
        return [{"layer": name, "alone_db": alone, "network_db": together}
                for name, (alone, together) in self.layers.items()]


def _sqnr(exact: np.ndarray, got: np.ndarray, zero_point: int) -> float:
    noise = ((got.astype(float) - exact) ** 2).sum()
    return float(10 * np.log10(((exact.astype(float) - zero_point) ** 2).sum() / noise)) if noise else float("inf")


def resnet8_errors(folder: Path) -> dict[str, FormErrors]:
    """`errors` of the trained ResNet-8 of ``folder`` on the photographs beside it, by how its shifts were chosen.

    Raises OSError when there are none.
    """
    graph = load_model(folder / "mlperf_resnet8_int8.onnx").graph
    archive = next(iter(sorted(folder.glob("cifar10_test_jpg_*.zip"))), None)
    if archive is None:
        raise FileNotFoundError(errno.ENOENT, "no photographs", str(folder))
    pixels, labels = read_photographs(archive)
    inputs = {next(iter(graph.inputs)): (pixels.transpose(0, 3, 1, 2) ^ 128).view(np.int8)}
    return {"2 bits everywhere": errors(graph, inputs, labels=labels),
            "chosen by these photographs": errors(graph, inputs, samples=inputs, labels=labels)}


def errors(graph: Graph, inputs: Mapping[str, np.ndarray], *, samples: Mapping[str, np.ndarray] | None = None,
           labels: Iterable[int] | None = None) -> FormErrors:
    """All 3x3 layers of stride 1 narrow: with safe shifts, or with those that suit ``samples`` (as ``inputs``) best.

    ``labels``: the right ones, if they are known.
    """
    names = [layer.name for layer in graph.of(Conv) if has_tiles(layer)]
    shifts = dict.fromkeys(names, SAFE_SHIFTS) if samples is None else fit_shifts(graph, names, samples)
    narrow = narrow_graph(graph, shifts)
    # The host's part is left out: labels are those of the scores before it.
    plain = replace(graph, outputs={name: (tensor, ()) for name, (tensor, _) in graph.outputs.items()})
    _, exact = reference.run(plain, inputs, keep=True)
    _, together = reference.run(replace(narrow, outputs=plain.outputs), inputs, keep=True)
    assert exact is not None and together is not None
    layers = {}
    for layer in narrow.layers:
        if layer.name in shifts:
            alone = run_layer(layer, exact[layer.input], [exact[name] for name in layer.reads[1:]],
                              zero_point=graph.tensors[layer.input].zero_point)
            zero_point = graph.tensors[layer.output].zero_point
            layers[layer.name] = (_sqnr(exact[layer.output], alone, zero_point),
                                  _sqnr(exact[layer.output], together[layer.output], zero_point))
    tensor = next(iter(graph.outputs.values()))[0]
    before, after = (tensors[tensor].reshape(len(tensors[tensor]), -1).argmax(axis=1) for tensors in (exact, together))
    right = None
    if labels is not None:
        wanted = np.asarray(list(labels))
        right = int((before == wanted).sum()), int((after == wanted).sum())
    return FormErrors(layers, int((before != after).sum()), len(before), right)
