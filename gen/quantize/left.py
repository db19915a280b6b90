"""Where the noise that is left comes from, and what more bits would bring there."""

from collections.abc import Callable, Collection
from dataclasses import dataclass

from gen.onnx.runtime import float_outputs
from gen.quantize.options import QuantizeError
from gen.quantize.plan import plan_quantisation
from gen.quantize.quantize import Quantized
from gen.quantize.sessions import Progress, Samples
from gen.quantize.trial import Judges, Trial, decibels

__all__ = ["what_is_left"]

#: Samples that are looked at, and places that a line names.
_SAMPLES, _NAMED = 8, 3
#: Bits that are tried in the place of 8.
_BITS = 16
#: A place whose noise is less than this share of all is one of many.
_MUCH = 0.1


@dataclass(frozen=True)
class _Place:
    """A node with the tensors that it makes and its constants; "" is the inputs."""

    node: str
    tensors: tuple[str, ...]
    constants: tuple[str, ...]

    def __str__(self) -> str:
        return self.node or f"input {', '.join(self.tensors)}"


def what_is_left(found: Quantized, samples: Samples, keep_float: Collection[str] = (),
                 progress: Progress = lambda done, total, what: None) -> str:
    """Of which nodes most noise is, and how much less there would be with 16 bits or float there; "" without a float
    output. Raises QuantizeError.
    """
    if not float_outputs(found.reference):
        return ""
    few = {name: array[:_SAMPLES] for name, array in samples.items()}
    judges = Judges(found.reference, few)
    trial = Trial(found.model, found.plan, judges.wanted, list(few), reference=found.reference)
    places = _places(found, trial)

    def loss(changed: Collection[_Place], tensors: Collection[str] | None = None) -> float:
        wide = [name for place in changed for name in place.tensors if tensors is None or name not in tensors]
        exact = {name for place in changed for name in place.constants}
        return float(judges.losses(trial.run(few, bits=dict.fromkeys(wide, _BITS), exact=exact))[0].mean())

    whole = loss([])
    losses = []
    for number, place in enumerate(places):
        progress(number, len(places), "looking for the noise")
        losses.append((loss([place]), number))
    first = [places[number] for one, number in sorted(losses)[:_NAMED] if one < whole]
    if not first:
        return ""
    parts = []
    for place in first:
        alone = min(one for one, number in losses if places[number] is place)
        parts.append(f"{place} ({decibels(alone)} with {_BITS} bits there{_kept(found, place, keep_float, loss)})")
    line = f"of {decibels(whole, ' dB')} on {len(judges)} samples most is lost at {', '.join(parts)}"
    if len(first) > 1:
        line += f"; {decibels(loss(first))} with {_BITS} bits at all of these"
    if min(losses)[0] > (1 - _MUCH) * whole:
        line += f"; no node has more than {100 * (1 - min(losses)[0] / whole):.0f} % of the noise, so all have a part"
    return line


def _kept(found: Quantized, place: _Place, keep_float: Collection[str], loss: Callable[..., float]
          ) -> str:
    """What it brings to leave a node to the processor: what a layer reads of it stays int8."""
    if not place.node:
        return ""
    try:
        plan = plan_quantisation(found.reference, frozenset({*keep_float, place.node}))
    except QuantizeError:       # nothing else is left, or it is no node of the model any more
        return ""
    return f", {decibels(loss([place], plan.tensors.keys()))} with --keep-float {place.node}"


def _places(found: Quantized, trial: Trial) -> list[_Place]:
    """The inputs, and the nodes, in their order."""
    tensors: dict[str, list[str]] = {"": []}
    for name, node in found.plan.tensors.items():
        tensors.setdefault(node, []).append(name)
    constants = {layer.node: tuple(filter(None, (trial.constant(layer.weights), trial.constant(layer.bias))))
                 for layer in found.plan.layers}
    names = dict.fromkeys((*tensors, *constants))
    places = [_Place(node, tuple(tensors.get(node, ())), constants.get(node, ())) for node in names]
    return [place for place in places if place.tensors or place.constants]
