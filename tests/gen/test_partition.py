"""Models of which a part runs on the processor."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper

from boards.registry import get_board
from cores.errors import Reason
from gen.check.compare import LayerDifference, compare_model, wrong_layers
from gen.ir import reference
from gen.ir.errors import GraphError
from gen.onnx.read import read
from gen.onnx.runtime import RuntimeModel
from gen.partition.partition import Partition, partition
from gen.partition.probe import probe
from gen.partition.work import Work, multiplications
from gen.program.program import ProgramError
from gen.run.application import Application, HostOptions, open_application
from gen.run.inputs import Samples
from gen.run.runner import run_model
from gen.run.workload import Workload
from tests.errors import is_about, raises
from tests.gen.qdq import Builder
from tests.gen.random_models import RandomModel

CONFIG = get_board("zu3eg").config(16)
ASKED = Reason("asked for", code="not-worth-it")


def convolved(builder: Builder, value: str, channels: int = 4, *, of: int = 4) -> str:
    """A 3x3 convolution whose result is not quantised."""
    return builder.node("Conv", value, builder.weights(channels, of, 3, 3), pads=[1, 1, 1, 1])


def onnxruntime(path: Path, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    options = ort.SessionOptions()
    options.log_severity_level = 4
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    count = len(next(iter(inputs.values())))
    runs = [session.run(names, {name: array[n:n + 1] for name, array in inputs.items()}) for n in range(count)]
    return {name: np.stack([run[place][0] for run in runs]) for place, name in enumerate(names)}


def check(builder: Builder, folder: Path, *, steps: float = 2, scale: float = 0.05) -> Application:
    """Compiles the model, saves and loads the program, runs it, and compares outputs with onnxruntime's run of all."""
    path = builder.save(folder)
    application = open_application(path, CONFIG)
    application.save(folder / "x.npu")
    inputs = builder.samples(2)
    run = run_model(open_application(folder / "x.npu", None), Samples(inputs, None), "functional")
    assert run.mismatches == 0 and run.compared
    for name, expected in onnxruntime(path, inputs).items():
        np.testing.assert_allclose(run.outputs[name].astype(float), expected, rtol=0, atol=steps * scale)
    return application


def cut(application: Application) -> Partition:
    assert application.partition is not None
    return application.partition


@pytest.fixture
def builder(rng: np.random.Generator) -> Builder:
    return Builder(rng)


def test_an_operator_in_the_middle(builder: Builder, tmp_path: Path) -> None:
    real = builder.requantize(builder.input(1, 4, 6, 6, number=np.float32), zero_point=0)
    real = builder.requantize(convolved(builder, real), zero_point=0)
    real = builder.requantize(builder.node("Sigmoid", real), scale=1 / 256, zero_point=-128)
    builder.output(builder.requantize(convolved(builder, real), zero_point=0), np.float32)
    found = cut(check(builder, tmp_path))
    assert [segment.place for segment in found.segments] == ["accelerator", "host", "accelerator"]
    assert (found.subgraphs, found.switches) == (2, 2)
    assert [*found.host] == ["sigmoid6"]
    is_about(found.host["sigmoid6"], "needs-unit", unit="table")


def test_quantisation_of_onnxruntime_behind_an_operator(builder: Builder, tmp_path: Path) -> None:
    """Nodes of com.microsoft, as onnxruntime's quantiser writes them for weights of 4 bits: what follows a node of the
    processor has a type all the same, and its multiplications count.
    """
    real = builder.requantize(builder.input(1, 4, 6, 6, number=np.float32), zero_point=0)
    real = builder.requantize(convolved(builder, real), zero_point=0)
    real = builder.requantize(builder.node("Sigmoid", real), scale=1 / 256, zero_point=-128)
    builder.output(builder.requantize(convolved(builder, real), zero_point=0), np.float32)
    whole = read(builder.save(tmp_path)).proto
    for node in builder.nodes:
        if node.op_type in ("QuantizeLinear", "DequantizeLinear"):
            node.domain = "com.microsoft"
    found = cut(check(builder, tmp_path))
    assert [segment.place for segment in found.segments] == ["accelerator", "host", "accelerator"]
    assert multiplications(found.model.proto) == multiplications(whole) > 0


def test_what_does_not_depend_on_each_other_is_one_part(builder: Builder, tmp_path: Path) -> None:
    """Two heads with a processor's operator each: in the order of the nodes there would be a switch for each."""
    real = builder.requantize(builder.input(1, 4, 6, 6, number=np.float32), zero_point=0)
    for _ in range(2):
        head = builder.requantize(convolved(builder, real), zero_point=0)
        builder.output(builder.node("Sigmoid", head), np.float32)
    found = cut(check(builder, tmp_path))
    assert [segment.place for segment in found.segments] == ["accelerator", "host"]


def test_a_result_that_both_sides_read(builder: Builder, tmp_path: Path) -> None:
    """It crosses once, and the second segment on the accelerator has it as integers, as it needs them."""
    real = builder.requantize(builder.input(1, 4, 6, 6, number=np.float32), zero_point=0)
    real = builder.requantize(convolved(builder, real), zero_point=0)
    bent = builder.requantize(builder.node("Sigmoid", real), scale=1 / 256, zero_point=-128)
    total = builder.requantize(builder.node("Add", builder.requantize(convolved(builder, bent), zero_point=0), real),
                               zero_point=0)
    builder.output(total, np.float32)
    found = cut(check(builder, tmp_path))
    assert found.subgraphs == 2
    types = {value.name: value.type.tensor_type.elem_type for value in found.segments[2].model.graph.input}
    assert TensorProto.INT8 in types.values() and len(types) == 2


def test_several_paths(builder: Builder, tmp_path: Path) -> None:
    """A result that is quantised for the next layer, and not for the processor."""
    real = builder.requantize(builder.input(1, 4, 6, 6, number=np.float32), zero_point=0)
    conv = convolved(builder, real)
    builder.output(builder.node("Sigmoid", conv), np.float32)
    builder.output(builder.requantize(convolved(builder, builder.requantize(conv, zero_point=0)), zero_point=0),
                   np.float32)
    found = cut(check(builder, tmp_path))
    assert [*found.quantised] == [conv] and (found.subgraphs, found.switches) == (1, 1)
    assert found.before is not None
    assert (found.before.subgraphs, found.before.host_products, found.host_products) == (1, 1, 0)


def test_one_path(builder: Builder, tmp_path: Path) -> None:
    """A result that the processor turns upside down before it is quantised."""
    real = builder.requantize(builder.input(1, 4, 6, 6, number=np.float32), zero_point=0)
    conv = convolved(builder, real)
    moved = builder.node("Slice", conv, *(builder.constant(np.array([n])) for n in (-1, -7, 2, -1)))
    builder.output(builder.requantize(moved, zero_point=0), np.float32)
    builder.output(conv, np.float32)
    # Somebody wants it unquantised: how to quantise that is not known, so it stays what it is.
    with pytest.raises(GraphError):
        partition(read(builder.save(tmp_path)))
    builder.outputs.pop()
    found = cut(check(builder, tmp_path))
    assert [*found.quantised] == [conv] and found.host_products == 0


def test_a_range_that_samples_show(builder: Builder, tmp_path: Path) -> None:
    """Nothing in the model says how to quantise a head that only the processor reads."""
    real = builder.requantize(builder.input(1, 4, 6, 6, number=np.float32), zero_point=0)
    conv = convolved(builder, builder.requantize(convolved(builder, real), zero_point=0))
    builder.output(builder.node("Sigmoid", conv), np.float32)
    path = builder.save(tmp_path)
    model = read(path)
    before, after = partition(model), partition(model, ranges=lambda _, names: dict.fromkeys(names, (-3.0, 2.0)))
    assert (before.host_products, after.host_products) == (1, 0)
    assert [*after.quantised] == [conv] and after.before is not None
    constants = {tensor.name: onnx.numpy_helper.to_array(tensor) for tensor in after.model.proto.graph.initializer}
    assert constants[f"{conv}/scale"] == np.float32(5 / 255)
    assert constants[f"{conv}/zero_point"] == round(-128 + 3 * 255 / 5)


def test_each_part_of_what_the_processor_joins(builder: Builder, tmp_path: Path) -> None:
    """Has a range of its own, and the Concat none."""
    real = builder.requantize(builder.input(1, 4, 6, 6, number=np.float32), zero_point=0)
    parts = [convolved(builder, real), builder.requantize(convolved(builder, real), zero_point=0)]
    builder.output(builder.node("Sigmoid", builder.node("Concat", *parts, axis=1)), np.float32)
    asked: list[str] = []

    def ranges(model: onnx.ModelProto, names: Sequence[str]) -> dict[str, tuple[float, float]]:
        asked.extend(names)
        return dict.fromkeys(names, (-3.0, 2.0))

    found = partition(read(builder.save(tmp_path)), ranges=ranges)
    assert asked == parts[:1] == [*found.quantised] and found.host_products == 0


def test_an_output_whose_shape_depends_on_values(builder: Builder, tmp_path: Path) -> None:
    real = builder.requantize(builder.input(1, 4, 6, 6, number=np.float32), zero_point=0)
    real = builder.requantize(convolved(builder, real), zero_point=0)
    builder.output(builder.node("NonZero", real), np.int64, rank=2)
    path = builder.save(tmp_path)
    (name, values), = builder.samples(2).items()
    values[0] = 0       # and nothing is added to it
    run = run_model(open_application(path, CONFIG), Samples({name: values}, None), "functional")
    assert {*run.outputs} == {"nonzero6_y/0", "nonzero6_y/1"}
    assert run.outputs["nonzero6_y/0"].shape == (4, 0)                      # a row for each axis
    assert run.outputs["nonzero6_y/1"].shape[0] == 4 and run.outputs["nonzero6_y/1"].size


def test_outputs_whose_shapes_are_not_inferred(builder: Builder, tmp_path: Path) -> None:
    """A constant, such as the shape of a result, and what is rearranged by numbers that another result holds: the
    program can be opened all the same.
    """
    real = builder.requantize(builder.input(1, 4, 6, 6, number=np.float32), zero_point=0)
    real = builder.requantize(convolved(builder, real), zero_point=0)
    builder.output(real, np.float32)
    builder.output(shape := builder.node("Shape", real), np.int64, rank=1)
    least = builder.node("ReduceMin", real, axes=[0, 2, 3], keepdims=0)
    sizes = builder.node("Cast", builder.node("Abs", builder.node("Sign", least)), to=TensorProto.INT64)
    builder.output(ones := builder.node("Expand", builder.constant(np.float32([2])), sizes), np.float32, rank=4)
    open_application(builder.save(tmp_path), CONFIG).save(tmp_path / "x.npu")
    samples = Samples(builder.samples(1), None)
    found = run_model(open_application(tmp_path / "x.npu", None), samples, "functional").outputs
    assert found[shape].tolist() == [[1, 4, 6, 6]] and (found[ones] == 2).all()


@pytest.mark.parametrize("cropped", [False, True])
def test_a_part_without_products_stays_on_the_processor(cropped: bool, builder: Builder, tmp_path: Path) -> None:
    """What is cut out is a convolution to the machine, but not worth a segment either."""
    real = builder.requantize(builder.input(1, 4, 6, 6, number=np.float32), zero_point=0)
    real = builder.requantize(convolved(builder, real), zero_point=0)
    real = builder.requantize(builder.node("Sigmoid", real), scale=1 / 256, zero_point=-128)
    if cropped:
        real = builder.node("Slice", real, *(builder.constant(np.array([n])) for n in (1, 5, 2)))
    pooled = builder.requantize(builder.node("MaxPool", real, kernel_shape=[2, 2]), scale=1 / 256, zero_point=-128)
    builder.output(builder.node("Exp", pooled), np.float32)
    found = cut(check(builder, tmp_path))
    assert found.subgraphs == 1
    assert any(reason.code == "not-worth-it" for reason in found.host.values())


def test_without_a_processor_it_is_refused(builder: Builder, tmp_path: Path) -> None:
    real = builder.requantize(builder.input(1, 4, 6, 6, number=np.float32), zero_point=0)
    builder.output(builder.node("Sigmoid", builder.requantize(convolved(builder, real), zero_point=0)), np.float32)
    path = builder.save(tmp_path)
    with raises(GraphError, "needs-unit", operator="Sigmoid", unit="table"):
        open_application(path, CONFIG, host=HostOptions(allowed=False))


@pytest.mark.parametrize("spoil, line", [
    ("order", "a segment reads what none before it makes"),
    ("outputs", "no segment makes an output"),
    ("host", "a model inside"),
])
def test_damaged_programs(builder: Builder, spoil: str, line: str, tmp_path: Path) -> None:
    real = builder.requantize(builder.input(1, 4, 6, 6, number=np.float32), zero_point=0)
    builder.output(builder.node("Sigmoid", builder.requantize(convolved(builder, real), zero_point=0)), np.float32)
    application = open_application(builder.save(tmp_path), CONFIG)
    if spoil == "order":
        application = replace(application, segments=application.segments[::-1])
    elif spoil == "outputs":
        application = replace(application, outputs=("another",))
    else:
        object.__setattr__(application.segments[1], "model", b"none")
    application.save(tmp_path / "x.npu")
    with pytest.raises(ProgramError, match=line):
        open_application(tmp_path / "x.npu", None)


def test_a_program_does_not_ask_for_other_files(builder: Builder, tmp_path: Path) -> None:
    real = builder.requantize(builder.input(1, 4, 6, 6, number=np.float32), zero_point=0)
    scaled = builder.node("Mul", builder.node("Sigmoid", builder.requantize(convolved(builder, real), zero_point=0)),
                          builder.node("Sigmoid", builder.requantize(convolved(builder, real), zero_point=0)))
    builder.output(scaled, np.float32)
    application = open_application(builder.save(tmp_path), CONFIG)
    host = application.segments[1]
    model = onnx.load_model_from_string(host.model)  # type: ignore[union-attr]
    tensor = model.graph.initializer.add(name="secret", data_type=TensorProto.FLOAT, dims=[1])
    tensor.data_location = TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value="/etc/passwd")
    model.graph.node.add(op_type="Exp", input=["secret"], output=["told"], name="told")
    model.graph.output.add(name="told").type.tensor_type.elem_type = TensorProto.FLOAT
    object.__setattr__(host, "model", model.SerializeToString())
    application.save(tmp_path / "x.npu")
    with pytest.raises(ProgramError, match="another file|external|other file"):
        open_application(tmp_path / "x.npu", None)


def layers_beyond(application: Application, sample: Mapping[str, np.ndarray]) -> list[LayerDifference]:
    """The layers on the accelerator that are not onnxruntime's, but for a step, on what the segments before give."""
    found, values = [], dict(sample)
    for segment in application.segments:
        given = {name: values[name] for name in segment.inputs}
        if isinstance(segment, Workload):
            found += wrong_layers(compare_model(segment.imported, given).layers)
            values |= reference.run(segment.graph, given)[0]
        else:
            values |= segment.run(given)
    return found


@pytest.mark.slow
@pytest.mark.parametrize("count", [8, pytest.param(300, marks=pytest.mark.full)])
def test_random_cuts(count: int, seed: int, tmp_path: Path) -> None:
    """Random nodes of random models left to the processor: the result is that of onnxruntime for the whole model, but
    for what a step of an early layer becomes in later ones; where that is much, each layer by itself is within a step.
    ``count`` models, or more until a third as many have come to several segments.
    """
    cuts = number = 0
    while number < count or cuts < count // 3:
        assert number < 6 * count
        rng = np.random.default_rng([seed, number])
        number += 1
        model = RandomModel(rng)
        path = model.save(tmp_path)
        names = [node.name for node in model.nodes]
        leave = dict.fromkeys(rng.choice(names, min(3, len(names)), replace=False), ASKED)
        try:
            application = open_application(path, CONFIG, host=HostOptions(leave=leave))
        except GraphError:
            continue    # nothing of it is left for the accelerator
        inputs = model.samples(2)
        run = run_model(application, Samples(inputs, None), "functional")
        assert run.mismatches == 0, f"number {number}"
        for name, expected in onnxruntime(path, inputs).items():
            difference = np.abs(run.outputs[name].astype(float) - expected)
            assert np.square(difference).sum() <= 0.01 * np.square(expected.astype(float)).sum() + 1e-9, number
            if difference.max() > 0.04 * np.abs(expected).max() + 1e-6:
                for place in range(2):
                    sample = {name: array[place:place + 1] for name, array in inputs.items()}
                    assert not layers_beyond(application, sample), f"number {number}: {path}"
        cuts += len(application.segments) > 1


@pytest.mark.slow
@pytest.mark.parametrize("count", [8, pytest.param(300, marks=pytest.mark.full)])
def test_segments_are_the_model(count: int, seed: int, tmp_path: Path) -> None:
    """Segments of random cuts, all run by onnxruntime, give the bits of the whole model."""
    cuts = 0
    for number in range(count):
        rng = np.random.default_rng([seed, number])
        model = RandomModel(rng)
        path = model.save(tmp_path)
        names = [node.name for node in model.nodes]
        try:
            found = partition(read(path), rebuild=False,
                              leave=dict.fromkeys(rng.choice(names, min(3, len(names)), replace=False), ASKED))
        except GraphError:
            continue    # nothing of it is left for the accelerator
        whole, values = RuntimeModel(path.read_bytes()), dict(model.samples(1))
        expected = dict(zip(whole.outputs, whole.run(values), strict=True))
        for segment in found.segments:
            runtime = RuntimeModel(segment.model)
            values |= zip(runtime.outputs, runtime.run(values), strict=True)
        for name, value in expected.items():
            np.testing.assert_array_equal(values[name], value, err_msg=f"number {number}: {path}")
        cuts += len(found.segments) > 1
    assert cuts >= count // 3


@pytest.mark.parametrize("dims", [[1, 4, -8, 8], [1, 4, 1 << 20, 1 << 20], [1, 4, 0, 8]])
def test_shapes_that_a_file_makes_up(dims: list[int], builder: Builder, tmp_path: Path) -> None:
    """What it says of a value of the processor is no reason to allocate it, nor to look for its layout for ever."""
    real = builder.requantize(builder.input(1, 4, 6, 7, number=np.float32), zero_point=0)
    made = builder.node("Softplus", builder.requantize(convolved(builder, real), zero_point=0))
    builder.output(builder.requantize(convolved(builder, builder.requantize(made)), zero_point=0), np.float32)
    model = read(builder.save(tmp_path))
    types = {made: helper.make_tensor_type_proto(TensorProto.FLOAT, dims)}
    found = probe(model, {}, types)
    assert len(found.layers) == 1 and any(reason.code == "value-type" for reason in found.host.values())


def test_a_model_without_layers(builder: Builder, tmp_path: Path) -> None:
    shape = builder.node("Shape", builder.input(1, 4, 6, 7, number=np.float32))
    builder.output(shape, np.int64, rank=1)
    with raises(GraphError, "constant-output", output="shape0_y"):
        partition(read(builder.save(tmp_path)))



def test_work_of_shapes_that_only_the_parts_know() -> None:
    """Where nodes compute shapes, inference may know those of the parts alone: what each has is counted."""
    def product(shape: list[int | str], columns: int) -> onnx.ModelProto:
        values = [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape),
                  helper.make_tensor_value_info("w", TensorProto.FLOAT, [24, columns])]
        result = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
        return helper.make_model(helper.make_graph([helper.make_node("MatMul", ["x", "w"], ["y"])], "g", values,
                                                   [result]))

    unknown = product([1, 24], 8)
    unknown.graph.input[0].type.tensor_type.ClearField("shape")
    parts = [SimpleNamespace(place="accelerator", model=product([1, 24], 8)),
             SimpleNamespace(place="host", model=product([1, 24], 3))]
    model = SimpleNamespace(nodes=(), proto=unknown)
    found = Work.of(cast(Partition, SimpleNamespace(model=model, segments=parts, host={})))
    assert (found.multiplications, found.accelerated_multiplications) == (24 * 11, 24 * 8)
