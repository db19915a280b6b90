"""A small model in streams for the driver's tests: one convolution."""

from pathlib import Path

import numpy as np

from gen.options import CompileOptions
from gen.run.workload import Workload, open_workload
from sim.stochastic.streams import Streams
from tests.gen.qdq import Builder
from tests.sim.test_rtl_stochastic import CONFIGS

__all__ = ["CONFIG", "workload"]

#: One that other tests compile, too.
CONFIG = CONFIGS["and_loop"]


def workload(rng: np.random.Generator) -> Workload:
    """int8 (8, 4, 4) -> int8 (8, 4, 4), by streams of 64 bits."""
    b = Builder(rng)
    real = b.dequantize(b.input(1, 8, 4, 4), zero_point=0)
    b.output(b.quantize(b.node("Conv", real, b.weights(8, 8, 3, 3), pads=[1, 1, 1, 1]), zero_point=0))
    content = b.build().SerializeToString()
    name = open_workload(Path("streams.onnx"), CONFIG, content=content).graph.layers[0].name
    return open_workload(Path("streams.onnx"), CONFIG, CompileOptions(stochastic={name: Streams(64)}, keep_all=True),
                         content=content)
