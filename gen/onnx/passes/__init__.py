"""What is done on an ONNX model before it is walked.

Each pass is a function ModelProto -> ModelProto in a file of its own and can run alone; it may change the model that it
gets. All raise GraphError. `load_external` comes first and has to know the model's folder; `fold_constants` comes last
and works on the model taken apart (`gen.onnx.read`).
"""

from collections.abc import Callable
from pathlib import Path

import onnx

from gen.onnx.passes.bound_size import bound_size
from gen.onnx.passes.check import check
from gen.onnx.passes.check_types import check_types, value_types
from gen.onnx.passes.drop_unused import drop_unused
from gen.onnx.passes.fold_constants import fold_constants
from gen.onnx.passes.hoist_quantisation import hoist_quantisation
from gen.onnx.passes.inline_functions import inline_functions
from gen.onnx.passes.load_external import load_external
from gen.onnx.passes.make_dense import make_dense
from gen.onnx.passes.name_nodes import name_nodes

__all__ = [
    "PASSES", "bound_size", "check", "check_types", "drop_unused", "fold_constants", "hoist_quantisation",
    "inline_functions", "load_external", "make_dense", "name_nodes", "run_passes", "value_types",
]

PASSES: tuple[Callable[[onnx.ModelProto], onnx.ModelProto], ...] = (
    bound_size, check, inline_functions, name_nodes, make_dense, check_types, drop_unused, hoist_quantisation)


def run_passes(model: onnx.ModelProto, *, folder: Path | None) -> onnx.ModelProto:
    """`load_external` from ``folder``, if there is one, and all of `PASSES` in order."""
    model = load_external(model, folder=folder)
    for apply in PASSES:
        model = apply(model)
    return model
