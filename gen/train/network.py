"""An ONNX model as a PyTorch module: the graph is walked as it is, and its initializers are the parameters."""

from collections.abc import Collection, Sequence
from typing import Any

import numpy as np
import onnx
import torch
from onnx import helper, numpy_helper
from torch import Tensor, nn

from gen.prune.counts import LEARNT
from gen.prune.layers import QUANTISING, ModelView, find_layers
from gen.prune.sizes import sizes_of
from gen.train.binary import Estimator, binary_layers, binary_weights, sign, sign_forms
from gen.train.call import Call
from gen.train.errors import TrainError
from gen.train.operators import OPERATORS, dequantize, quantize
from gen.train.scales import Scales, find_scales, gentle
from gen.train.streams import StreamLayers

__all__ = ["Network"]

#: After the scores of classes.
_FINAL = (*QUANTISING, "Softmax", "Identity")

#: What is added to a score to hide it, at most; other numbers are biases of positions.
_HIDES = -100.0


class Network(nn.Module):
    """A float or QDQ model that can be trained. Raises TrainError, which names the node, for what is not known here.

    What stands after a DequantizeLinear, weights and biases, is kept in floats and rounded to the integers of its
    scale each time it is used; so are activations at a QuantizeLinear, with onnxruntime's arithmetic: an exported
    model is what was trained, up to the order of sums. Weights of a layer that reads signs are binary where they are in
    ``model`` (plus or minus one number in each channel), and where ``binary`` has a pattern of the layer's name; these,
    too, are kept in floats. ``estimator``: of the slope of signs. ``scales``: those of a QDQ model are learnt, too.
    ``streams``: of so many bits, which the sums of a QDQ model's layers are made of (`gen.train.streams`).
    """

    def __init__(self, model: onnx.ModelProto, *, binary: Collection[str] = (),
                 estimator: Estimator = "clipped", scales: bool = False, streams: int | None = None) -> None:
        super().__init__()
        self._model = model
        self._view = view = ModelView.of(model)
        self.input = model.graph.input[0].name
        #: Values that are computed of shapes, and those of them that layers are told.
        self._of_shapes, self._sizes = sizes_of(model)
        forms = self._signs = sign_forms(view)
        unknown = next((node for node in self._nodes
                        if (node.op_type not in OPERATORS and node.output[0] not in forms)
                        or node.domain not in ("", "ai.onnx")), None)
        if unknown is not None:
            way_out = "; quantise in the form QDQ" if unknown.op_type.startswith("QLinear") else ""
            raise TrainError(f"node {unknown.name} ({unknown.op_type}) cannot be trained{way_out}")
        self._arrays = {name: numpy_helper.to_array(tensor) for name, tensor in view.constants.items()}
        self._whole = {name: array for name, array in {**self._arrays, **self._sizes}.items()
                       if array.dtype.kind in "iu"}
        #: Initializer of integers that is learnt -> its DequantizeLinear.
        self._rounded: dict[str, onnx.NodeProto] = {}
        self._estimator = estimator
        #: Initializer of binary weights -> axis of its output channels.
        self._binary = binary_layers(model, self._arrays, binary)
        self._keys = {name: f"p{number}" for number, name in enumerate(self._arrays)}
        self._scales = find_scales(view) if scales else Scales()
        self._streams = None if streams is None else StreamLayers(view, streams)
        #: Values of a sample, or of a channel of weights, that a learnt scale divides.
        self._divided: dict[str, int] = {}
        learnt = self._find_learnt() | self._scales.learnt
        for name, array in self._arrays.items():
            if name in learnt:
                real = self._real(name) if name in self._rounded else torch.tensor(array)
                self.register_parameter(self._keys[name], nn.Parameter(real))
            else:
                self.register_buffer(self._keys[name], torch.tensor(array.astype(np.float32)))
        self._masks: dict[str, Tensor] = {}
        #: The value before the last Softmax, and quantisation.
        self.scores = view.behind(model.graph.output[0].name, _FINAL)

    @property
    def _nodes(self) -> list[onnx.NodeProto]:
        """Those that compute with what flows through the model."""
        return [node for node in self._model.graph.node if node.output[0] not in self._of_shapes]

    def _find_learnt(self) -> set[str]:
        learnt = set()
        masks = self._find_masks()
        for node in self._model.graph.node:
            for place in LEARNT.get(node.op_type, ()):
                value = node.input[place] if place < len(node.input) else ""
                name = self._view.behind(value, QUANTISING)
                if name not in self._arrays or self._arrays[name].ndim == 0 or name in masks:
                    continue
                if self._arrays[name].dtype == np.float32:
                    learnt.add(name)
                elif value in self._view.makers and self._view.makers[value].input[0] == name:
                    self._rounded[name] = self._view.makers[value]
                    learnt.add(name)
        return learnt

    def _find_masks(self) -> set[str]:
        """Maps that are added in front of a Softmax and hide something, or may, as integers of them do."""
        added = {name for node in self._model.graph.node if node.op_type == "Softmax"
                 for name in self._added(self._view.behind(node.input[0], QUANTISING))}
        maps = {name: self._arrays[name] for name in added if name in self._arrays}
        return {name for name, array in maps.items() if array.squeeze().ndim > 1
                and (array.dtype.kind in "iu" or array.min() <= _HIDES)}

    def _added(self, value: str) -> list[str]:
        """What is summed up to ``value``."""
        maker = self._view.makers.get(value)
        if maker is None or maker.op_type != "Add":
            return [value]
        return [name for given in maker.input for name in self._added(self._view.behind(given, QUANTISING))]

    def _parameter(self, name: str) -> Tensor:
        return getattr(self, self._keys[name])

    @property
    def scales(self) -> list[Tensor]:
        """Those that are learnt."""
        return [self._parameter(name) for name in sorted(self._scales.learnt)]

    def _step(self, name: str) -> Tensor:
        """A scale as it is now."""
        if name in self._scales.biases:
            source, weights = self._scales.biases[name]
            return (self._step(source) * self._step(weights)).detach()
        if name in self._scales.learnt:
            return gentle(self._parameter(name), self._divided.get(name, 1))
        return self._parameter(name)

    def _scale(self, node: onnx.NodeProto, scale: Tensor | None = None) -> tuple[Tensor, Tensor, int]:
        """Scale, zero point and axis of a DequantizeLinear; the scale as the model has it, if there is no other."""
        scale = torch.tensor(self._arrays[node.input[1]]) if scale is None else scale
        point = (torch.tensor(self._arrays[node.input[2]].astype(np.float32)) if len(node.input) > 2
                 else torch.zeros_like(scale))
        return scale, point, next((a.i for a in node.attribute if a.name == "axis"), 1)

    def _real(self, name: str) -> Tensor:
        return dequantize(torch.tensor(self._arrays[name].astype(np.float32)), *self._scale(self._rounded[name]))

    def _integers(self, name: str) -> Tensor:
        """A learnt initializer of integers, in floats."""
        node = self._rounded[name]
        self._divided[node.input[1]] = self._arrays[name].size // max(1, self._arrays[node.input[1]].size)
        if name in self._binary:
            scale, _, axis = self._scale(node, self._step(node.input[1]))
            return sign(dequantize(self._value(name), 1 / scale, torch.zeros_like(scale), axis), "clipped")
        limits = np.iinfo(self._arrays[name].dtype)
        scale, point, axis = self._scale(node, self._step(node.input[1]))
        return quantize(self._value(name), scale, point, axis, (int(limits.min), int(limits.max)))

    def _value(self, name: str) -> Tensor:
        """A parameter or constant, with its mask; scales, and binary weights, as they are computed with."""
        if name in self._scales.learnt or name in self._scales.biases:
            return self._step(name)
        value = self._parameter(name)
        if name in self._binary and name not in self._rounded:
            return binary_weights(value, self._binary[name])
        return value * self._masks[name] if name in self._masks else value

    def keep_zeros(self, keep: bool) -> None:
        """Weights that are zero now stay so, or no more."""
        self._masks = {}
        if keep:
            for layer in find_layers(self._model):
                if layer.initializer in self._keys and layer.initializer not in self._binary:
                    self._masks[layer.initializer] = (self._parameter(layer.initializer).detach() != 0).float()

    @property
    def gammas(self) -> list[Tensor]:
        """Scales of all BatchNormalizations."""
        return [self._parameter(node.input[1]) for node in self._model.graph.node
                if node.op_type == "BatchNormalization" and node.input[1] in self._keys]

    def forward(self, x: Tensor, *, norms: bool = False) -> Tensor:
        """Scores of the classes. ``norms``: BatchNormalizations use the batch's statistics and update their own."""
        return self.values(x, (self.scores,), norms=norms)[0]

    def values(self, x: Tensor, names: Sequence[str], *, norms: bool = False) -> list[Tensor]:
        """Values of the model; ``norms`` as `forward`. Raises TrainError for one that it does not have."""
        values: dict[str, Tensor] = {self.input: x}
        wanted = set(names)
        for node in self._nodes:
            if (form := self._signs.get(node.output[0])) is not None:
                real = values[form.source] if form.source in values else self._value(form.source)
                threshold = self._value(form.threshold) if form.threshold else None
                values[node.output[0]] = form.of(real, threshold, self._estimator)
                continue
            made = self._apply(node, values, norms)
            values.update(zip(node.output, made if isinstance(made, tuple) else (made,), strict=False))
            if wanted <= values.keys():
                break
        if missing := [name for name in names if name not in values]:
            raise TrainError(f"the model has no output {missing[0]}, which the head names; it has "
                             f"{', '.join(value.name for value in self._model.graph.output)}")
        return [values[name] for name in names]

    def _apply(self, node: onnx.NodeProto, values: dict[str, Tensor], norms: bool) -> Tensor | tuple[Tensor, ...]:
        attributes: dict[str, Any] = {a.name: helper.get_attribute_value(a) for a in node.attribute}
        attributes = {name: value.decode() if isinstance(value, bytes) else value for name, value in attributes.items()}
        if node.op_type == "QuantizeLinear" and node.input[0] in values:
            self._divided[node.input[1]] = values[node.input[0]][0].numel()
        inputs: list[Tensor | None] = []
        for name in node.input:
            if name in self._rounded and self._rounded[name].output[0] == node.output[0]:
                inputs.append(self._integers(name))
            else:
                inputs.append(values[name] if name in values else self._value(name) if name in self._keys else None)
        numbers = {place: self._whole[name] for place, name in enumerate(node.input) if name in self._whole}
        call = Call(inputs, attributes, {place: array.reshape(-1).tolist() for place, array in numbers.items()}, norms,
                    self._limits(node), self._estimator, {place: array.shape for place, array in numbers.items()},
                    len(node.output))
        apply = OPERATORS[node.op_type]
        try:
            made = apply(call)
            if self._streams is not None and (scales := self._streams.found.get(node.name)) is not None:
                source, weights = (self._value(name) for name in (scales.source, scales.weights))
                return self._streams.add_excess(made, node, call, apply, source, weights)
            return made
        except TrainError as error:
            raise TrainError.of(error, f"node {node.name} ({node.op_type}): {error}", node=node.name) from None
        except (RuntimeError, TypeError, ValueError, LookupError) as error:
            raise TrainError(f"node {node.name} ({node.op_type}) cannot be computed: "
                             f"{str(error).splitlines()[0]}") from None

    def _limits(self, node: onnx.NodeProto) -> tuple[int, int]:
        """Of the integers that a QuantizeLinear makes."""
        if node.op_type != "QuantizeLinear" or len(node.input) < 3 or node.input[2] not in self._arrays:
            return 0, 255
        limits = np.iinfo(self._arrays[node.input[2]].dtype)
        return int(limits.min), int(limits.max)

    def exported(self) -> onnx.ModelProto:
        """The model with what has been learnt in its initializers; names and graph are what they were."""
        result = onnx.ModelProto()
        result.CopyFrom(self._model)
        with torch.no_grad():
            for tensor in result.graph.initializer:
                old = self._arrays[tensor.name]
                if tensor.name in self._rounded:
                    array = self._integers(tensor.name).numpy().astype(old.dtype)
                elif old.dtype == np.float32:
                    array = self._value(tensor.name).numpy()
                else:
                    continue
                if not np.array_equal(array, old):
                    tensor.CopyFrom(numpy_helper.from_array(np.ascontiguousarray(array), tensor.name))
        return result
