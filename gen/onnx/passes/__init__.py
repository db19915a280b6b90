"""What is done on an ONNX model before it is walked.

Each pass is a function ModelProto -> ModelProto in a file of its own and can run alone; it may change the model that it
gets. All raise GraphError. `load_external` comes first and has to know the model's folder, then `bind_shapes`, which
is told sizes; `fold_constants` comes last and works on the model taken apart (`gen.onnx.read`).
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import onnx

from gen.onnx.passes.bind_shapes import bind_shapes
from gen.onnx.passes.bound_size import bound_size
from gen.onnx.passes.check import check
from gen.onnx.passes.check_types import as_shaped, check_types, value_types
from gen.onnx.passes.drop_casts import drop_casts
from gen.onnx.passes.drop_unused import drop_unused
from gen.onnx.passes.enclose import disclose, enclose
from gen.onnx.passes.find_prelus import find_prelus
from gen.onnx.passes.fold_constants import fold_constants
from gen.onnx.passes.fold_sizes import fold_sizes
from gen.onnx.passes.fold_straight_through import fold_straight_through
from gen.onnx.passes.free_batch import free_batch
from gen.onnx.passes.hoist_quantisation import hoist_quantisation
from gen.onnx.passes.hoist_transposes import hoist_transposes
from gen.onnx.passes.inline_functions import inline_functions
from gen.onnx.passes.keep_quantisation import keep_quantisation
from gen.onnx.passes.lift_qonnx import lift_qonnx
from gen.onnx.passes.load_external import load_external
from gen.onnx.passes.make_dense import make_dense
from gen.onnx.passes.merge_blocks import merge_blocks
from gen.onnx.passes.merge_pool_padding import merge_pool_padding
from gen.onnx.passes.name_nodes import name_nodes
from gen.onnx.passes.sink_transposes import sink_transposes
from gen.onnx.passes.spread_fused import spread_fused
from gen.onnx.passes.take_branches import take_branches
from gen.onnx.passes.undo_flattening import undo_flattening

__all__ = [
    "PASSES", "as_shaped", "bind_shapes", "bound_size", "check", "check_types", "disclose", "drop_casts",
    "drop_unused", "enclose", "find_prelus", "fold_constants", "fold_sizes", "fold_straight_through", "free_batch",
    "hoist_quantisation", "hoist_transposes", "inline_functions", "keep_quantisation", "lift_qonnx",
    "load_external", "make_dense", "merge_blocks", "merge_pool_padding", "name_nodes", "run_passes", "sink_transposes",
    "spread_fused", "take_branches", "undo_flattening", "value_types",
]

PASSES: tuple[Callable[[onnx.ModelProto], onnx.ModelProto], ...] = (
    bound_size, lift_qonnx, check, inline_functions, take_branches, name_nodes, enclose, make_dense, check_types,
    drop_casts, spread_fused, merge_blocks, undo_flattening, hoist_transposes, merge_pool_padding, find_prelus,
    fold_straight_through, fold_sizes, drop_unused, free_batch, hoist_quantisation, keep_quantisation)


def run_passes(model: onnx.ModelProto, *, folder: Path | None,
               shapes: Mapping[str, Sequence[int]] | None = None) -> onnx.ModelProto:
    """`load_external` from ``folder``, if there is one, `bind_shapes` to ``shapes``, and all of `PASSES` in order."""
    model = bind_shapes(load_external(model, folder=folder), shapes or {})
    for apply in PASSES:
        model = apply(model)
    return model
