"""Run in a copy of the tree with the ternary unit: its layers on the functional simulator and on the Verilog."""

from dataclasses import replace

import numpy as np

from cores.config import NpuConfig
from gen.ir.graph import Conv, Graph
from gen.ir.tensor import Requantize, Tensor
from sim.cycles import estimate
from sim.rtl import Bus, RtlMachine
from tests.compiled import compile_kept
from tests.sim.on_rtl import check_on_rtl

MACHINE = NpuConfig(oc_lanes=16, ic_lanes=8, nnz_lanes=2, input_depth=512, acc_depth=64, weight_depth=512,
                    ternary_rows=8)


def ternary_layers(rng: np.random.Generator) -> Graph:
    """A 3x3 convolution to 20 channels and a 1x1 one to 9."""
    sizes = {"x": (12, 9, 9), "y": (20, 9, 9), "z": (9, 9, 9)}
    tensors = {name: Tensor(name, size, 1.0, int(rng.integers(-9, 9))) for name, size in sizes.items()}
    layers = []
    for source, target, kernel in (("x", "y", 3), ("y", "z", 1)):
        count = sizes[target][0]
        stage = Requantize(rng.integers(-500, 500, count), np.full(count, 1 << 16), np.full(count, 20), 3, -128, 127)
        weights = rng.integers(-1, 2, (count, sizes[source][0], kernel, kernel)).astype(np.int16)
        layers.append(Conv(f"to {target}", source, target, weights=weights, pads=(kernel // 2,) * 4, requantize=stage))
    return Graph("ternary", tensors, layers, {"x": ("x", ())}, {"z": ("z", ())})


def main() -> None:
    graph = ternary_layers(np.random.default_rng(3))
    program, compiled = compile_kept(graph, MACHINE)
    assert "ternary" in {layer.mode for layer in program.layers}, [layer.mode for layer in program.layers]
    plain = replace(MACHINE, ternary_rows=0)
    without = estimate(plain, compile_kept(graph, plain)[0].code).cycles
    with RtlMachine(MACHINE, seed=1) as machine:
        result = check_on_rtl(machine, program, compiled, 1, bus=Bus())
    modelled, measured = estimate(MACHINE, program.code).cycles, result.counters["cycles"]
    assert abs(modelled - measured) <= 0.02 * measured, (modelled, measured)
    print(f"{measured} cycles on the Verilog, {modelled} by the time model, {without} without the unit")


if __name__ == "__main__":
    main()
