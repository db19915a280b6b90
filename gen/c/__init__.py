"""What the processor computes of a model, as C99 without dependencies.

`generate` makes a function of a model; operators are in `gen.c.kernels`, each registered by `gen.c.registry.operator`.
A function is a sequence of calls of helpers (`gen.c.helper`), each an operation for some types, which go along *walks*
(`gen.c.walk`) over tensors in an arena that the caller gives. So many nodes of one kind cost little code.
"""

from gen.c.function import CFunction, Port, render
from gen.c.generate import generate

__all__ = ["CFunction", "Port", "generate", "render"]
