"""A model as it was read: nodes, constants, the shapes of the inputs, without any meaning yet."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx

from cores.errors import CodedError

__all__ = ["MICROSOFT", "PRODUCTS", "Budget", "Model", "ModelInput", "Node", "NodeError"]

#: The domain of operators that onnxruntime adds to ONNX.
MICROSOFT = "com.microsoft"
#: Convolutions and matrix products: what the accelerator is for.
PRODUCTS = ("Conv", "ConvTranspose", "Gemm", "MatMul", "QLinearConv", "QLinearMatMul", "QGemm")


class NodeError(CodedError, ValueError):
    """What is wrong with a node; whoever walks the nodes makes a GraphError of it that says which it is.

    ``at``: the name of the node, where it is an earlier one than that at hand.
    """

    def __init__(self, message: str, *, at: str = "", code: str = "", **fields: object) -> None:
        super().__init__(message, code=code, **fields)
        self.at = at


@dataclass(frozen=True)
class Node:
    """An ONNX node with its attributes as Python values; ``""`` stands for an input left out."""

    #: "" for ONNX's own operators.
    domain: str
    op: str
    name: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: Mapping[str, Any]
    proto: onnx.NodeProto

    def __str__(self) -> str:
        return f"node {self.name} ({f'{self.domain}.' if self.domain else ''}{self.op})"


@dataclass(frozen=True)
class ModelInput:
    """A model input: ``shape`` has 1 in place of a symbolic number of samples."""

    name: str
    elem_type: int
    shape: tuple[int, ...]


@dataclass(frozen=True)
class Budget:
    """Bytes that nodes evaluated at compile time may still have as results, and read as inputs."""

    results: int
    reads: int


@dataclass(frozen=True)
class Model:
    """``proto``: the whole model, also what is folded in ``nodes`` and ``constants``."""

    path: str
    proto: onnx.ModelProto
    opset: int
    nodes: tuple[Node, ...]
    constants: Mapping[str, np.ndarray]
    inputs: tuple[ModelInput, ...]
    outputs: tuple[str, ...]
    budget: Budget
