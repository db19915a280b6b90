"""Cuts of which the importer takes every segment."""

from collections.abc import Callable, Mapping

from cores.errors import Reason
from gen.ir.errors import GraphError
from gen.onnx.model import Model
from gen.partition.partition import Partition, SegmentModel
from gen.partition.unfit import UnfitNodesError

__all__ = ["require_taken", "settle"]


def settle(cut: Callable[[Mapping[str, Reason]], Partition]) -> Partition:
    """What ``cut`` makes once all nodes that the importer refuses in a segment are left to the processor; it is given
    those, and why. Raises as it does, and GraphError for a segment that is refused as a whole.
    """
    leave: dict[str, Reason] = {}
    first: UnfitNodesError | None = None
    while True:
        try:
            found = cut(leave)
            for segment in found.segments:
                if segment.place == "accelerator":
                    require_taken(segment, found.model)
            return found
        except UnfitNodesError as error:
            first = first or error
            if error.reasons.keys() <= leave.keys():
                raise first from None
            leave |= error.reasons
        except GraphError:
            if first is None:
                raise
            raise first from None


def require_taken(segment: SegmentModel, model: Model) -> None:
    """Raises UnfitNodesError for a node that the importer refuses in a ``segment`` of ``model``, as it may lie in
    another way there than in the whole; GraphError for what is no node's fault.
    """
    try:
        _ = segment.imported
    except GraphError as error:
        if "node" not in error.fields:
            raise
        raise UnfitNodesError.refused(error, model, segment.nodes) from None
