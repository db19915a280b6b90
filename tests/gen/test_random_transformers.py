"""Random transformers: no layer is more than one LSB from onnxruntime, and machines have the golden model's bytes."""

from pathlib import Path

import numpy as np
import pytest

from cores.config import NpuConfig
from gen.check.compare import compare_model
from gen.onnx.importer import load_model
from gen.onnx.machine import Machine
from tests.compiled import compile_kept
from tests.every_order import check_in_every_order
from tests.gen.random_transformers import RandomTransformer

#: With products by a corner turn, by gathered loads, and what else graphs have use for.
MACHINES = {
    "turn 64": NpuConfig.preset(64, turn=1, rows=64, table=1, product=1),
    "turn 256": NpuConfig.preset(256, turn=1, rows=64, table=1, product=1, depthwise=1, local_store=1, gather=1),
    "turn one pixel": NpuConfig(oc_lanes=32, ic_lanes=8, nnz_lanes=4, pixel_lanes=1, select_fanin=4, input_depth=1024,
                                acc_depth=64, turn=1, rows=32, table=1, product=1),
    "gather 16": NpuConfig.preset(16, gather=1, rows=16, table=1, product=1, input_depth=1024),
    "gather 256": NpuConfig.preset(256, gather=1, rows=64, table=1, product=1),
}


@pytest.mark.slow
@pytest.mark.parametrize(("numbers", "largest"), [
    (range(1), 33),
    *(pytest.param(range(first, first + 10), 197, marks=pytest.mark.full) for first in range(0, 60, 10)),
], ids=lambda numbers: f"from{numbers.start}" if isinstance(numbers, range) else None)
@pytest.mark.parametrize("name", MACHINES)
def test_every_layer(name: str, numbers: range, largest: int, seed: int, tmp_path: Path) -> None:
    """With noise in all padding, in every order that the machine's queues may take: 300 in all in the full run."""
    config = MACHINES[name]
    for number in numbers:
        model = RandomTransformer(np.random.default_rng([seed, number]), largest=largest, windows=bool(config.turn))
        imported = load_model(model.save(tmp_path), machine=Machine.of(config))
        # More than a unit is allowed where a step is much finer than those of what it is made of: of thousands of
        # layers hardly one is. All others differ by one at most.
        layers = compare_model(imported, model.samples(2)).layers
        assert not any(layer.beyond for layer in layers), f"number {number}"
        assert sum(layer.allowed > 1 for layer in layers) <= 1, f"number {number}"
        assert sum(layer.largest > 1 for layer in layers) <= 1, f"number {number}"
        check_in_every_order(*compile_kept(imported.graph, config), number)
