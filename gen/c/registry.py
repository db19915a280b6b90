"""Which operators there is C for."""

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from gen.onnx.model import MICROSOFT, Node

if TYPE_CHECKING:
    from gen.c.context import Context

__all__ = ["OPERATORS", "Kernel", "operator"]

#: Emits the C of a node; says with `Context.result` what its outputs are.
Kernel = Callable[[Node, "Context"], None]

#: By domain and name.
OPERATORS: dict[tuple[str, str], Kernel] = {}


def operator(*names: str, domains: Iterable[str] = ("",)) -> Callable[[Kernel], Kernel]:
    """Registers a kernel for these operators; ``domains`` may include `gen.onnx.model.MICROSOFT`."""
    def register(kernel: Kernel) -> Kernel:
        for domain in domains:
            for name in names:
                assert domain in ("", MICROSOFT) and (domain, name) not in OPERATORS
                OPERATORS[domain, name] = kernel
        return kernel
    return register
