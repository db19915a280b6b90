"""Tasks of a model that is cut: those that wait for each other run together, and segments are as few as can be."""

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from onnx import NodeProto

from cores.config import NpuConfig
from gen.onnx.machine import Machine
from gen.onnx.model import Node
from gen.onnx.read import read
from gen.partition.components import components
from gen.partition.partition import partition
from gen.partition.probe import Probed
from gen.partition.schedule import Task, schedule, tasks
from gen.run.application import open_application
from gen.run.inputs import Samples
from gen.run.runner import run_model
from tests.gen.qdq import Builder
from tests.gen.test_partition import onnxruntime

TABLES = Machine.having("table", "product")


def leads_to(edges: list[set[int]]) -> np.ndarray:
    """bool (N, N): whether a number waits for another, at once or through others (Warshall's closure)."""
    reach = np.eye(len(edges), dtype=bool)
    for number, others in enumerate(edges):
        reach[number, list(others)] = True
    for middle in range(len(edges)):
        reach |= reach[:, middle, None] & reach[middle]
    return reach


def test_components(rng: np.random.Generator) -> None:
    for _ in range(200):
        count = int(rng.integers(1, 12))
        edges = [set(np.flatnonzero(rng.random(count) < rng.choice([0.05, 0.15, 0.3])).tolist()) for _ in range(count)]
        reach = leads_to(edges)
        found = components([dict.fromkeys(sorted(others)) for others in edges])
        assert sorted(sum(found, [])) == list(range(count))
        place = {member: number for number, members in enumerate(found) for member in members}
        for a in range(count):
            for b in range(count):
                assert (place[a] == place[b]) == bool(reach[a, b] and reach[b, a])
                assert not reach[a, b] or place[b] <= place[a]


def test_a_chain_that_is_longer_than_python_recurs() -> None:
    chain: list[dict[int, None]] = [{number + 1: None} for number in range(20_000)]
    assert [members for members in components([*chain, {0: None}])] == [list(range(20_001))]


def test_segments_are_as_few_as_the_alternations(rng: np.random.Generator) -> None:
    """Of every path the changes of place, plus one: no schedule has fewer."""
    for _ in range(100):
        found: list[Task] = []
        longest: list[int] = []
        for number in range(int(rng.integers(1, 20))):
            place = rng.choice(["accelerator", "host"])
            needs = [n for n in range(number) if rng.random() < 0.2]
            longest.append(max((longest[n] + (found[n].place != place) for n in needs), default=1))
            found.append(NamedTask(place, frozenset(f"v{n}" for n in needs), f"v{number}"))
        made: set[str] = set()
        result = schedule(found)
        for segment in result:
            assert {task.place for task in segment.tasks} == {segment.place}
            for task in segment.tasks:
                assert task.reads <= made
                made |= task.makes
        assert len(made) == len(found)
        assert max(longest) <= len(result) <= max(longest) + (len({task.place for task in found}) > 1)


class NamedTask(Task):
    """A task that makes one value."""

    def __init__(self, place: str, reads: frozenset[str], made: str) -> None:
        super().__init__(place, (), reads)  # type: ignore[arg-type]
        object.__setattr__(self, "made", made)

    @property
    def makes(self) -> frozenset[str]:
        return frozenset([self.made])  # type: ignore[attr-defined]


@pytest.fixture
def builder(rng: np.random.Generator) -> Builder:
    return Builder(rng)


def normalised(builder: Builder, value: str) -> str:
    """What only the processor has, quantised."""
    return builder.requantize(builder.node("LpNormalization", value, axis=-1), scale=1 / 128, zero_point=0)


def convolved(builder: Builder, value: str, *, of: int = 4) -> str:
    return builder.node("Conv", value, builder.weights(4, of, 3, 3), pads=[1, 1, 1, 1])


@pytest.mark.parametrize("blocks", [1, 3])
def test_a_function_that_is_quantised_on_its_way(blocks: int, builder: Builder, tmp_path: Path) -> None:
    """A GELU as exporters write it, its Div quantised: the table begins before that quantisation and ends after it."""
    real = builder.requantize(builder.input(1, 4, 6, 6, number=np.float32), zero_point=0)
    for _ in range(blocks):
        real = builder.requantize(convolved(builder, normalised(builder, real)), zero_point=0)
        divided = builder.requantize(builder.node("Div", real, builder.constant(np.float32(1.414))), zero_point=0)
        shifted = builder.node("Add", builder.node("Erf", divided), builder.constant(np.float32(1)))
        half = builder.node("Mul", builder.node("Mul", real, shifted), builder.constant(np.float32(0.5)))
        real = builder.requantize(convolved(builder, builder.requantize(half, zero_point=0)), zero_point=0)
    builder.output(real, np.float32)
    path = builder.save(tmp_path)
    found = partition(read(path), machine=TABLES)
    assert {node.split("_")[0].rstrip("0123456789") for node in found.host} == {"lpnormalization"}
    assert len(found.host) == blocks
    assert (found.subgraphs, found.switches, found.host_products) == (blocks, 2 * blocks - 1, 0)
    application = open_application(path, NpuConfig.preset(16, table=1))
    run = run_model(application, Samples(builder.samples(2), None), "functional")
    assert run.mismatches == 0 and run.compared


def test_a_result_that_both_sides_read(builder: Builder, tmp_path: Path) -> None:
    """A convolution is quantised for the processor, and added to what that makes of it."""
    real = builder.requantize(builder.input(1, 4, 6, 6, number=np.float32), zero_point=0)
    conv = convolved(builder, real)
    total = builder.node("Add", conv, normalised(builder, builder.requantize(conv, zero_point=0)))
    builder.output(builder.requantize(convolved(builder, builder.requantize(total, zero_point=0)), zero_point=0),
                   np.float32)
    found = partition(read(builder.save(tmp_path)), machine=TABLES)
    assert found.host_products == 0 and (found.subgraphs, found.switches) == (2, 2)


def test_a_layer_around_a_node_of_the_processor() -> None:
    """What comes after that node cannot be in the turn of what comes before it, so it goes to the processor."""
    nodes = [Node("", "Op", name, inputs, (name,), {}, NodeProto()) for name, inputs in {
        "before": ("x",), "host": ("before",), "moved": ("host",), "after": ("moved", "before"), "last": ("after",),
    }.items()]
    layers = [SimpleNamespace(onnx_nodes=("before", "after")), SimpleNamespace(onnx_nodes=("last",))]
    probed = Probed({"host": "why"}, layers, {}, {}, frozenset(), {})  # type: ignore[arg-type]
    found, apart = tasks(nodes, probed)
    assert [*apart] == ["after"] and "begins before node host, which runs on the processor" in apart["after"]
    assert sum(len(task.nodes) for task in found) == 4


def dense(builder: Builder, value: str, features: int, of: int) -> str:
    return builder.node("MatMul", value, builder.weights(of, features, axis=1))


@pytest.mark.parametrize("shape", [(4, 9, 8), (36, 8), (2, 2, 9, 8), (1, 2, 2, 9, 8)])
def test_tokens_that_the_processor_makes(shape: tuple[int, ...], builder: Builder, tmp_path: Path) -> None:
    """Windows of tokens, whose first axis is not the sample's, are inputs of the accelerator like others."""
    real = builder.requantize(builder.input(1, 8, 6, 6, number=np.float32), zero_point=0)
    real = builder.requantize(builder.node("Conv", real, builder.weights(8, 8, 3, 3), pads=[1, 1, 1, 1]), zero_point=0)
    real = builder.node("Transpose", real, perm=[0, 2, 3, 1])
    real = normalised(builder, builder.node("Reshape", real, builder.constant(np.array(shape, np.int64))))
    for _ in range(2):      # a residual connection around two products, as transformers have them
        inner = normalised(builder, real)
        inner = builder.requantize(builder.node("Relu", dense(builder, inner, 16, 8)), zero_point=-128)
        real = builder.requantize(builder.node("Add", real, builder.requantize(
            dense(builder, inner, 8, 16), zero_point=0)), zero_point=0)
    real = builder.node("Reshape", normalised(builder, real), builder.constant(np.array([1, 6, 6, 8], np.int64)))
    real = builder.node("Transpose", real, perm=[0, 3, 1, 2])
    builder.output(builder.requantize(convolved(builder, real, of=8), zero_point=0), np.float32)
    path = builder.save(tmp_path)
    application = open_application(path, NpuConfig.preset(16, table=1))
    found = application.partition
    assert found is not None and found.host_products == 0
    assert [*found.host] == [name for name in found.host if name.startswith("lpnorm")]
    application.save(tmp_path / "x.npu")
    inputs = builder.samples(2)
    run = run_model(open_application(tmp_path / "x.npu", None), Samples(inputs, None), "functional")
    assert run.mismatches == 0 and run.compared
    for name, expected in onnxruntime(path, inputs).items():
        np.testing.assert_allclose(run.outputs[name].astype(float), expected, rtol=0, atol=4 * 0.05)


def test_an_output_without_the_samples_in_front(builder: Builder, tmp_path: Path) -> None:
    """It is what one sample gives; the processor takes the axis away, and the layer stays on the accelerator."""
    real = builder.requantize(builder.input(1, 8, 6, 6, number=np.float32), zero_point=0)
    real = builder.requantize(builder.node("Conv", real, builder.weights(8, 8, 3, 3), pads=[1, 1, 1, 1]), zero_point=0)
    builder.output(builder.node("Reshape", real, builder.constant(np.array([4, 2, 36]))), np.float32, rank=3)
    path = builder.save(tmp_path)
    application = open_application(path, NpuConfig.preset(16))
    assert application.partition is not None and application.partition.host_products == 0
    inputs = builder.samples(2)
    run = run_model(application, Samples(inputs, None), "functional")
    assert run.mismatches == 0 and run.compared
    (found,) = run.outputs.values()
    assert found.shape == (2, 4, 2, 36)
