"""Networks by the axes of their layers: points, words, the cheapest one, descriptions that are none."""

from itertools import product
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from cores.arch.stochastic import Circuit
from cores.config import NpuConfig
from gen.explore.errors import SpaceError
from gen.explore.layer_axes import LayerAxes
from gen.explore.ledger import Ledger
from gen.explore.methods import Name, chosen_method
from gen.explore.search import search
from gen.explore.space import ABSENT, Space
from gen.explore.stream_machine import refusal
from gen.explore.task import read_task
from gen.explore.workers import Here
from gen.stochastic.backbone import Backbone
from gen.stochastic.cycles import estimated_cycles, layer_cycles
from gen.stochastic.errors import BackboneError
from tests.conftest import ROOT
from tests.gen.explore.stream_toy import FormulaMeter, check_a_search, stream_problem, stream_task

LENET = {"input": "12x12", "convolutions": {"count": [0, 1, 2], "channels": [6, 20], "kernel": [3, 5], "stride": [1, 2],
                                            "pool": [1, 2]},
         "hidden": {"count": [0, 1], "neurons": [32, 100]}}
MLP = {"input": "784", "hidden": {"count": [1, 2], "neurons": [60, 100, 200]}}


def axes(values: dict[str, Any]) -> LayerAxes:
    return msgspec.convert(values, LayerAxes)


def all_words(layers: LayerAxes) -> list[str]:
    space = Space(layers.axes, layers.needs)
    return [layers.word(space.point(number)) for number in range(space.size)]


def words_by_hand() -> set[str]:
    """Of `LENET`, without its axes."""
    one = [f"c{channels}k{kernel}{'s2' * (stride == 2)}{'-p2' * (pool == 2)}"
           for channels, kernel, stride, pool in product((6, 20), (3, 5), (1, 2), (1, 2))]
    front = ["", *(f"-{word}" for word in one), *(f"-{first}-{second}" for first, second in product(one, one))]
    return {f"12x12{words}{hidden}-10" for words in front for hidden in ("", "-32", "-100")}


def test_every_network_is_one_point():
    layers = axes(LENET)
    found = all_words(layers)
    assert len(found) == len(set(found)) == (1 + 16 + 16 ** 2) * 3 and set(found) == words_by_hand()


def test_axes_by_name():
    layers = axes(LENET)
    assert list(layers.axes) == ["convolutions", *(f"conv{number}_{name}" for number in (1, 2) for name in (
        "channels", "kernel", "stride", "pool")), "hidden", "hidden1_neurons"]
    assert layers.needs["conv2_kernel"] == ("convolutions", (2,)) and layers.needs["hidden1_neurons"] == ("hidden",
                                                                                                          (1,))


def test_what_means_nothing_is_absent(rng: np.random.Generator):
    layers = axes(LENET)
    space = Space(layers.axes, layers.needs)
    point = {name: values[-1] for name, values in space.axes.items()}
    assert space.settled(point) == point
    settled = space.settled({**point, "convolutions": 1, "hidden": 0})
    assert [name for name, value in settled.items() if value == ABSENT] == [
        "conv2_channels", "conv2_kernel", "conv2_stride", "conv2_pool", "hidden1_neurons"]
    for number in rng.integers(space.size, size=20):
        assert space.settled(space.point(int(number))) == space.point(int(number))


@pytest.mark.parametrize("values", [LENET, MLP])
def test_the_cheapest_network(values: dict[str, Any]):
    """By all of them, for the cycles of a machine and for weights."""
    layers, config = axes(values), NpuConfig.preset(256)
    networks = [Backbone(word) for word in all_words(layers)]
    for cost in (lambda layer: layer_cycles(layer, 8, config), lambda layer: layer.weights):
        found = layers.cheapest(cost)
        assert found is not None
        sums = [sum(map(cost, network.layers)) for network in networks]
        assert found[0] == min(sums) == sum(map(cost, Backbone(found[1]).layers))
    assert layers.example.word in {network.word for network in networks}


@pytest.mark.slow
@pytest.mark.parametrize("method", ["random", "optuna", "grid"])
def test_a_search_of_axes(method: Name):
    if method == "optuna":
        pytest.importorskip("optuna")
    check_a_search(method, MLP)


def test_what_is_no_network_is_no_solution():
    layers = {"input": "28x28", "convolutions": {"count": [3], "channels": [8], "kernel": [3], "pool": [1, 3, 4]}}
    problem = stream_problem(stream_task(backbones=msgspec.UNSET, layers=layers, lengths=[8], deadline_ms=1e-6))
    _, chosen = chosen_method("grid", problem, 1, 0)
    found = {one.facts["backbone"]: one for one in search(problem, chosen, Here(problem.meter), Ledger("t", None))}
    lost = found["28x28-c8k3-p4-c8k3-p4-c8k3-p3-10"]
    assert lost.infeasible == ("nothing is left of the feature map after a layer",)
    assert lost.figures == {"reward": -1.0} and lost.excess > 1e5
    assert not found["28x28-c8k3-p3-c8k3-p3-c8k3-p3-10"].infeasible[0].startswith("nothing")


def test_what_the_compiler_refuses_is_no_solution(monkeypatch: pytest.MonkeyPatch):
    """It is asked once of each network and circuit, and nothing is measured of those that it refuses."""
    asked = []

    def refused(backbone: Backbone, config: NpuConfig, circuit: Circuit) -> str:
        asked.append((backbone.word, circuit))
        return "too large" if "200" in backbone.word else ""

    monkeypatch.setattr("gen.explore.streams.refusal", refused)
    problem = stream_problem(stream_task(backbones=msgspec.UNSET, layers=MLP, lengths=[16, 64], circuits=["and-loop"]))
    _, chosen = chosen_method("grid", problem, 1, 0)
    found = search(problem, chosen, Here(problem.meter), Ledger("t", None))
    late = [one for one in found if "misses" in " ".join(one.infeasible)]
    no = [one for one in found if one.infeasible == ("too large",)]
    assert no and all(one.figures["reward"] == -1 for one in no) and len(asked) == len(set(asked))
    assert all("200" in one.facts["backbone"] for one in no) and late
    assert isinstance(problem.meter, FormulaMeter)
    assert not any("200" in str(job.get("backbone")) for job in problem.meter.measured)


@pytest.mark.parametrize("word, circuit, words", [
    ("28x28-c6k3-p2-c64k7-p2-32-128-10", Circuit.AND_LOOP, ""), ("28x28-c32k3s2-c6k5-32-512-10", Circuit.AND_ACC, ""),
    ("9x9-c20k3-5", Circuit.XNOR_MUX, ""), ("28x28-c8k31s9-10", Circuit.AND_LOOP, "padding is at most 15 columns")])
def test_what_the_machine_takes(word: str, circuit: Circuit, words: str):
    """The published LeNets, and a kernel that its loads cannot pad."""
    found = refusal(Backbone(word), NpuConfig.preset(256), circuit)
    assert words in found and bool(found) == bool(words)


@pytest.mark.parametrize("name, published", [
    ("mlp_layers", ["784-200-32-10", "784-128-100-10"]),
    ("lenet", ["28x28-c6k3-p2-c64k7-p2-32-128-10", "28x28-c32k3-c6k5-32-512-10"]),
    ("alexnet", ["32x32x3-c256k5-c32k3s2-c16k7s2-c16k5s2-c256k3-512-1024-10"])])
def test_spaces_that_are_shipped(name: str, published: list[str], rng: np.random.Generator):
    """The networks that were published as found are in them, and the machine takes any of their networks."""
    task = read_task(ROOT / "examples" / "stochastic" / f"{name}.json")
    layers = task.layers
    assert layers is not None
    space = Space(layers.axes, layers.needs)
    wanted = {word: Backbone(word) for word in published}
    for network in wanted.values():
        convolutions = [layer for layer in network.layers if layer.padding or layer.kernel == (1, 1) != (
            layer.input.height, layer.input.width)]
        hidden = network.layers[len(convolutions):-1]
        point: dict[str, Any] = {"convolutions": len(convolutions), "hidden": len(hidden)}
        for number, layer in enumerate(convolutions, 1):
            point |= {f"conv{number}_channels": layer.outputs, f"conv{number}_kernel": layer.kernel[0],
                      f"conv{number}_stride": layer.stride, f"conv{number}_pool": layer.pool}
        point |= {f"hidden{number}_neurons": layer.outputs for number, layer in enumerate(hidden, 1)}
        assert all(point.get(name, ABSENT) in (*space.axes[name], ABSENT) for name in space.axes)
        assert layers.word(point) == network.word
    for number in rng.integers(space.size, size=3):
        word = layers.word(space.point(int(number)))
        try:
            network = Backbone(word)
        except BackboneError as error:
            assert "nothing is left" in str(error)
            continue
        if estimated_cycles(network, 8, NpuConfig.preset(256)) < 10_000_000:
            assert not refusal(network, NpuConfig.preset(256), Circuit.AND_LOOP), word


@pytest.mark.parametrize("layers, words", [
    ({"input": "x"}, "'x' is no input; 784, 28x28 and 32x32x3 are"), ({"input": "784", "depth": 1}, "unknown field"),
    ({"input": "784", "classes": 1}, ">= 2"), ({"input": "784", "convolutions": LENET["convolutions"]}, "no rows and"),
    ({**LENET, "convolutions": {"count": [1], "channels": [6], "kernel": [4]}}, "kernel: 4 is even"),
    ({**LENET, "convolutions": {"count": [7], "channels": [6], "kernel": [3]}}, "<= 6"),
    ({**LENET, "convolutions": {"count": [1], "channels": [], "kernel": [3]}}, "length >= 1"),
    ({**LENET, "convolutions": {"count": [1], "channels": [6], "kernel": [33]}}, "<= 31"),
    ({**LENET, "convolutions": {"count": [1], "channels": [6], "kernel": [3], "stride": [0]}}, ">= 1"),
    ({**LENET, "convolutions": {"count": [3], "channels": [6], "kernel": [3], "pool": [5]}}, "nothing is left"),
    ({**LENET, "convolutions": {"count": [1], "channels": [6], "kernel": [3], "stride": [1] * 10}}, "length <= 9"),
    ({**LENET, "convolutions": {"count": [1], "channels": [*range(1, 33)], "kernel": [3], "stride": [1, 2, 3],
                                "pool": [1, 2, 3]}}, "288 layers by channels, stride and pool; 256 are the most"),
    ({"input": "784", "hidden": {"count": [4], "neurons": [10]}}, "<= 3"),
    ({"input": "784", "hidden": {"count": [1], "neurons": [5000]}}, "<= 4096")])
def test_descriptions_that_are_none(layers: dict[str, Any], words: str, tmp_path: Path):
    path = tmp_path / "space.json"
    values = msgspec.to_builtins(stream_task())
    del values["backbones"]
    path.write_bytes(msgspec.json.encode({**values, "layers": layers}))
    with pytest.raises(SpaceError, match=words) as caught:
        read_task(path)
    assert str(caught.value).startswith(f"{path}: ") and "\n" not in str(caught.value)


@pytest.mark.parametrize("more", [{"layers": MLP}, {"backbones": msgspec.UNSET}])
def test_either_words_or_axes(more: dict[str, Any]):
    with pytest.raises(msgspec.ValidationError, match="either backbones or layers"):
        stream_task(**more)
