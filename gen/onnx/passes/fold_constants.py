"""Nodes that depend on constants alone."""

from dataclasses import replace

from gen.onnx.fold import Folder
from gen.onnx.model import Model, NodeError

__all__ = ["fold_constants"]


def fold_constants(model: Model) -> Model:
    """Constants in place of nodes whose inputs are constants.

    DequantizeLinear stays, so that weights remain the integers that they are, and so does what is not folded
    (`gen.onnx.fold`). What else turns out to be constant while the model is walked (shapes of activations, weights that
    are quantised again) is folded there, from what is left of the budget.
    """
    folder, constants, nodes = Folder(model), dict(model.constants), []
    for node in model.nodes:
        if node.op == "DequantizeLinear" or not all(name in constants for name in node.inputs if name):
            nodes.append(node)
            continue
        try:
            results = folder(node, {name: constants[name] for name in node.inputs if name})
        except NodeError:
            nodes.append(node)      # whoever walks the model says why, or leaves it to the processor
            continue
        constants.update((name, array) for name, array in zip(node.outputs, results, strict=False) if name)
    if len(nodes) == len(model.nodes):
        return model
    needed = {*model.outputs, *(name for node in nodes for name in node.inputs)}
    kept = {name: array for name, array in constants.items() if name in needed}
    return replace(model, nodes=tuple(nodes), constants=kept, budget=folder.budget)
