"""Models and programs of which a part runs on the processor, as commands open them."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper, numpy_helper

from boards.registry import get_board
from cores.config import NpuConfig
from gen.cli import main
from gen.ir.errors import GraphError
from gen.mapping.registry import map_graph
from gen.onnx.read import read
from gen.options import CompileOptions
from gen.partition.partition import partition
from gen.program.file import ProgramFile
from gen.program.program import ProgramError
from gen.quantize.options import QuantizeOptions
from gen.run.application import Application, open_application
from gen.run.calibration import Calibration
from gen.run.host import HostSegment
from gen.run.inputs import Samples
from gen.run.runner import run_model
from npudriver.archive import write_archive
from tests.gen.cli.calls import error_line
from tests.gen.float_models import FloatBuilder
from tests.gen.qdq import Builder
from tests.npu_files import changed, read_files, resealed

CONFIG = get_board("zu3eg").config(16)

pytestmark = pytest.mark.usefixtures("elsewhere")


@pytest.fixture
def builder(rng: np.random.Generator) -> Builder:
    return Builder(rng)


def layer(b: Builder, real: str) -> str:
    """A 3x3 convolution of 4 channels whose result is not quantised."""
    return b.node("Conv", real, b.weights(4, 4, 3, 3), pads=[1, 1, 1, 1])


def headed(b: Builder, *, number: type = np.float32) -> str:
    """A layer, and another whose result only a Sigmoid reads, unquantised. Returns that result."""
    x = b.input("N", 4, 6, 6, number=number)
    real = b.requantize(x, zero_point=0) if number is np.float32 else b.dequantize(x, zero_point=0)
    head = layer(b, b.requantize(layer(b, real), zero_point=0))
    b.output(b.node("Sigmoid", head), np.float32)
    return head


def tailed(b: Builder, tail: Callable[[str], str], rank: int = 4) -> Path:
    """A layer with a Sigmoid and something else after it, whose shape the model does not say."""
    real = b.requantize(layer(b, b.requantize(b.input("N", 4, 6, 6, number=np.float32), zero_point=0)), zero_point=0)
    b.output(tail(b.node("Sigmoid", real)), np.float32, rank=rank)
    return b.save(Path())


def values(path: Path, name: str, inputs: dict[str, np.ndarray]) -> np.ndarray:
    """By onnxruntime as it comes, of all samples."""
    model = onnx.load(path)
    model.graph.output.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, None))
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return np.asarray(session.run([name], inputs)[0])


# -- samples for what is quantised in part -----------------------------------------------------------------------------


@pytest.mark.parametrize("number", [np.float32, np.int8])
def test_samples_give_the_ranges_that_a_model_lacks(number: type, rng: np.random.Generator):
    b = Builder(rng)
    head = headed(b, number=number)
    path, x = b.save(Path()), rng.uniform(-6, 6, (20, 4, 6, 6)).astype(number)
    np.savez("x.npz", x=x)
    calibration = Calibration(Path("x.npz"), QuantizeOptions(method="minmax"))
    without, found = open_application(path, CONFIG), open_application(path, CONFIG, calibration=calibration)
    assert without.partition is not None and found.partition is not None
    assert (without.partition.host_products, found.partition.host_products) == (1, 0)
    assert [*found.partition.quantised] == [head] and not found.remarks
    constants = {t.name: numpy_helper.to_array(t) for t in found.partition.model.proto.graph.initializer}
    shown = values(path, head, {"x": x})
    assert constants[f"{head}/scale"] == pytest.approx((shown.max() - shown.min()) / 255, rel=1e-5)
    run = run_model(found, Samples({"x": x[:2]}, None), "functional")
    exact = values(path, b.outputs[0].name, {"x": x[:2]})
    assert run.mismatches == 0
    np.testing.assert_allclose(run.outputs[b.outputs[0].name], exact, atol=float(constants[f"{head}/scale"]))


@pytest.mark.slow
def test_samples_of_no_use(builder: Builder, rng: np.random.Generator, capsys: pytest.CaptureFixture):
    """It is said, and what is about layers is refused, as those stay what they are."""
    np.savez("x.npz", x=rng.uniform(-6, 6, (20, 4, 6, 6)).astype(np.float32))
    model = str(tailed(builder, lambda bent: bent))
    argv = ["compile", model, "--macs", "16", "-o", "x.npu", "--no-check", "--calibrate", "x.npz"]
    assert "and its layers stay as they are; leave out" in error_line(capsys, 1, *argv, "--equalize")
    assert main([*argv, "--json"]) == 0
    out, err = capsys.readouterr()
    assert json.loads(out)["partition"]["quantised"] == [] and "--calibrate changes nothing" in err


def test_open_shapes_are_those_of_the_samples_or_of_shape(rng: np.random.Generator, capsys: pytest.CaptureFixture):
    b = FloatBuilder(rng, ["N", 3, "H", "W"])
    onnx.save(b.model(b.node("Sigmoid", b.conv("x", 3, 4))), "m.onnx")
    np.savez("x.npz", x=rng.normal(size=(20, 3, 8, 8)).astype(np.float32))
    compiled = ["compile", "m.onnx", "--calibrate", "x.npz", "--macs", "16", "--no-check", "--json", "-o", "x.npu"]
    quantized = ["quantize", "m.onnx", "--calibrate", "x.npz", "--json", "-o", "q.onnx"]
    for argv in (compiled, quantized, [*compiled, "--shape", "x=1,3,8,8"], [*quantized, "--shape", "x=1,3,8,8"]):
        assert main(argv) == 0
        json.loads(capsys.readouterr().out)
    assert main(["run", "x.npu", "--input", "x.npz", "--limit", "2", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["outputs"] == {"sigmoid1": [2, 4, 6, 6]}
    assert "must have the shape (samples, 3, 9, 9)" in error_line(capsys, 1, *quantized, "--shape", "x=1,3,9,9")
    assert "the inputs of the model are x" in error_line(capsys, 2, *quantized, "--shape", "x=1,3,8,8", "--shape",
                                                         "y=1,2")


def test_narrow_winograd_layers_behind_the_processor(builder: Builder, rng: np.random.Generator):
    """Their shifts go by what the segments in front of them make of the samples."""
    b = builder
    x = b.requantize(b.input("N", 16, 8, 8, number=np.float32), zero_point=0)
    first = b.node("Conv", x, b.weights(16, 16, 3, 3), pads=[1] * 4)
    bent = b.requantize(b.node("Sigmoid", b.requantize(first, zero_point=0)), scale=1 / 256, zero_point=-128)
    last = b.node("Conv", bent, b.weights(16, 16, 3, 3), pads=[1] * 4)
    b.output(b.requantize(last, zero_point=0), np.float32)
    path, config = b.save(Path()), NpuConfig.preset(64, winograd=1)
    np.savez("x.npz", x=rng.uniform(-0.1, 0.1, (2, 16, 8, 8)).astype(np.float32))     # all but zero
    options = CompileOptions(winograd="narrow")
    plain, fit = (open_application(path, config, options, winograd_samples=samples).workloads
                  for samples in (None, Path("x.npz")))
    shifts = [[set(workload.program.winograd.values()) for workload in workloads] for workloads in (plain, fit)]
    assert shifts[0] == [{(2,) * 16}] * 2
    assert shifts[1][0] == {(0,) * 16} and (2,) * 16 not in shifts[1][1]


# -- outputs -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("before", [False, True])
def test_operands_that_are_not_quantised(before: bool, rng: np.random.Generator, tmp_path: Path,
                                         capsys: pytest.CaptureFixture[str]) -> None:
    """Of a first layer with quantised weights: by samples, whether the model's input or what the processor makes."""
    b = Builder(rng)
    x = b.input(1, 3, 9, 9, number=np.float32)
    x = b.node("Div", b.node("Sub", x, b.constant(np.float32(0.4))), b.constant(np.float32(0.2))) if before else x
    y = b.requantize(b.node("Relu", b.node("Conv", x, b.weights(8, 3, 3, 3), b.bias(8))), 0.05, -128)
    b.output(b.requantize(b.node("Conv", y, b.weights(4, 8, 3, 3))), np.float32)
    b.save(tmp_path)
    np.savez("x.npz", x=rng.random((20, 3, 9, 9)).astype(np.float32))
    argv = ["compile", "model.onnx", "--macs", "16", "-o", "x.npu", "--json"]
    assert main(argv) == 0
    left = json.loads(capsys.readouterr().out)["partition"]["host"]
    assert [one["op"] for one in left if "samples for --calibrate do that" in one["reason"]] == ["Conv"]
    assert main([*argv, "--calibrate", "x.npz"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["partition"]["operands"] == ([x] if before else ["x"])
    assert {one["op"] for one in found["partition"]["host"]} == ({"Sub", "Div"} if before else set())
    assert found["check"]["layers"] == []


@pytest.mark.parametrize("tail, rank, shape", [
    (lambda b, real: b.node("ReduceMax", real, keepdims=0), 0, ()),
    (lambda b, real: b.node("Reshape", real, b.constant(np.array([36, 4]))), 2, (36, 4)),
    (lambda b, real: b.node("Flatten", real), 2, (144,)),
])
def test_outputs_without_an_axis_of_samples_are_whole(tail: Callable[[Builder, str], str], rank: int,
                                                      shape: tuple[int, ...], builder: Builder):
    path = tailed(builder, lambda bent: tail(builder, bent), rank)
    inputs = {"x": builder.rng.uniform(-6, 6, (2, 4, 6, 6)).astype(np.float32)}
    run = run_model(open_application(path, CONFIG), Samples(inputs, None), "reference")
    ((name, found),) = run.outputs.items()
    assert found.shape == (2, *shape)
    for number in range(2):
        one = values(path, name, {"x": inputs["x"][number:number + 1]})
        np.testing.assert_allclose(found[number], one.reshape(shape), atol=0.05)


# -- reconstruction ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("spoil", ["a scale for each channel", "16 bits"])
def test_a_quantisation_that_is_refused_is_added_once(spoil: str, builder: Builder):
    """Its layer goes to the processor with it."""
    b = builder
    b.opset = 21
    head = headed(b)
    if spoil == "16 bits":
        numbers = [b.scale(0.01), b.constant(np.int16(0))]
    else:
        numbers = [b.constant(np.full(4, 0.01, np.float32)), b.constant(np.zeros(4, np.int8))]
    b.output(b.node("DequantizeLinear", b.node("QuantizeLinear", head, *numbers, axis=1), *numbers, axis=1), np.float32)
    found = partition(read(b.save(Path())))
    assert found.subgraphs == 1 and found.host_products == 1


# -- programs ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def program(builder: Builder) -> Application:
    """Sigmoid after a layer, also in the file x.npu."""
    application = open_application(tailed(builder, lambda bent: bent), CONFIG)
    application.save(Path("x.npu"))
    return application


def test_programs_are_what_they_are(program: Application, capsys: pytest.CaptureFixture):
    for option in ("--reconstruct", "--host"):
        assert f"compile the model with {option} off" in error_line(capsys, 2, "profile", "x.npu", option, "off")


def test_commands_that_take_programs(program: Application, capsys: pytest.CaptureFixture):
    code = program.workloads[0].program.instructions
    assert main(["disasm", "x.npu"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == len(code)
    assert main(["disasm", "x.npu", "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)["instructions"]
    assert len(listed) == len(code) and {row["subgraph"] for row in listed} == {0}
    assert main(["profile", "x.npu"]) == 0
    assert "the processor's part of the model (1 segment)" in capsys.readouterr().out
    assert main(["profile", "x.npu", "--json"]) == 0
    host = json.loads(capsys.readouterr().out)["host"]
    assert host["segments"] == 1 and host["seconds"] > 0
    assert "where an ONNX model is needed" in error_line(capsys, 1, "compare", "x.npu", "--input", "x.npu")


def spoiled(program: Application, change: Callable[[onnx.ModelProto], None]) -> None:
    """The program with another model for the processor."""
    host = program.segments[1]
    assert isinstance(host, HostSegment)
    model = onnx.load_model_from_string(host.model)
    change(model)
    replace(program, segments=[program.segments[0], HostSegment(host.path, model.SerializeToString())]).save(
        Path("x.npu"))


def with_loop(model: onnx.ModelProto) -> None:
    inputs = [helper.make_tensor_value_info(name, number, []) for name, number in (
        ("n", TensorProto.INT64), ("go", TensorProto.BOOL))]
    body = helper.make_graph([helper.make_node("Identity", ["go"], [name]) for name in ("on", "all")], "body", inputs, [
        helper.make_tensor_value_info(name, TensorProto.BOOL, []) for name in ("on", "all")])
    model.graph.initializer.append(numpy_helper.from_array(np.array(1 << 60), "times"))
    model.graph.initializer.append(numpy_helper.from_array(np.array(True), "yes"))
    model.graph.node.append(helper.make_node("Loop", ["times", "yes"], ["many"], name="loop", body=body))


def with_room_in_a_branch(model: onnx.ModelProto) -> None:
    room = helper.make_graph(
        [helper.make_node("ConstantOfShape", ["much"], ["room"], name="room"),
         helper.make_node("ReduceMax", ["room"], ["most"], keepdims=0)], "room", [],
        [helper.make_tensor_value_info("most", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(np.array([1 << 20, 1 << 20]), "much")])
    model.graph.initializer.append(numpy_helper.from_array(np.array(True), "yes"))
    model.graph.node.append(helper.make_node("If", ["yes"], ["all"], name="if", then_branch=room, else_branch=room))


def with_open_loop(model: onnx.ModelProto) -> None:
    with_loop(model)
    model.graph.node[-1].input[0] = ""


def with_room(model: onnx.ModelProto) -> None:
    model.graph.initializer.append(numpy_helper.from_array(np.array([1 << 20, 1 << 20]), "much"))
    model.graph.node.append(helper.make_node("ConstantOfShape", ["much"], ["room"], name="room"))


def with_text(model: onnx.ModelProto) -> None:
    model.graph.input.append(helper.make_tensor_value_info("text", TensorProto.STRING, [1]))


@pytest.mark.parametrize("change, line", [
    (with_loop, "loop .Loop.: what it repeats would run 1,152,921,504,606,846,976 times"),
    (with_open_loop, "loop .Loop.: how often it runs is no constant"),
    (with_room_in_a_branch, "room .ConstantOfShape.: its result has 1,099,511,627,776 values"),
    (with_room, "room .ConstantOfShape.: its result has 1,099,511,627,776 values"),
    (with_text, "text is no tensor of numbers"),
])
def test_what_a_program_may_not_have_the_processor_do(change: Callable[[onnx.ModelProto], None], line: str,
                                                      program: Application):
    spoiled(program, change)
    with pytest.raises(ProgramError, match=f"damaged .*{line}"):
        open_application(Path("x.npu"), None)


@pytest.mark.parametrize("fields, line", [
    ({}, None),
    ({"segments": [{"place": "host", "path": "segment1.onnx"}]}, "the accelerator has no part"),
    ({"segments": [{"place": "host", "path": "segment1.onnx"}, {"place": "accelerator", "path": "program0"}]},
     "reads what none|is missing"),
    ({"segments": [{"place": "accelerator", "path": "program0"}, {"place": "accelerator", "path": "program1"}]},
     "no digest of program1"),
    ({"segments": [{"place": "host", "path": "segment1.onnx"}] * 2}, "that of no other segment"),
    ({"inputs": {"x": ["float32", [1 << 20, 1 << 20]]}}, "at most 67,108,864 values"),
    ({"inputs": {"x": ["float32", [0]]}}, "a whole number in 1.."),
    ({"inputs": {"x": ["object", [4, 6, 6]]}}, "one of bool"),
    ({"outputs": ["nowhere"]}, "no segment makes an output"),
])
def test_headers(fields: dict[str, object], line: str | None, program: Application):
    changed(Path("x.npu"), Path("x.npu"), lambda header: header.update(fields), "model.json")
    if line is None:
        open_application(Path("x.npu"), None)
        return
    with pytest.raises(ProgramError, match=line):
        open_application(Path("x.npu"), None)


def test_members_are_no_larger_than_the_file(program: Application):
    """Many that are compressed, or share what they have in the file, would be many times its size together."""
    files = read_files(Path("x.npu"))
    head = json.loads(files["model.json"])
    names = [f"large{number}.onnx" for number in range(3)]
    head["segments"] += [{"place": "host", "path": name} for name in names]
    head["files"].update(dict.fromkeys(names, {}))
    files = resealed({**files, "model.json": json.dumps(head).encode(), **dict.fromkeys(names, bytes(1 << 20))})
    Path("x.npu").write_bytes(write_archive(files, plain=files.keys() - set(names[1:])))
    with pytest.raises(ProgramError, match="where .* are the most there can be"):
        ProgramFile.load(Path("x.npu"))


def test_more_segments_than_a_program_has(program: Application):
    many = replace(program, segments=[*program.segments] * 200)
    with pytest.raises(ProgramError, match="in 400 segments, where a program has 256 at most"):
        many.save(Path("y.npu"))
    assert not Path("y.npu").exists()


def test_large_results_are_refused_when_a_model_is_compiled(builder: Builder):
    """As the program would be when it is run."""
    path = tailed(builder, lambda bent: builder.node("Expand", bent, builder.constant(np.array([1 << 19, 4, 6, 6]))))
    with pytest.raises(GraphError, match="its result has 75,497,472 values"):
        open_application(path, CONFIG)


def test_a_model_is_mapped_once(digits: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Which is most of what a compile takes."""
    mapped = []
    monkeypatch.setattr("gen.run.workload.map_graph", lambda *arguments: mapped.append(1) or map_graph(*arguments))
    assert main(["compile", str(digits / "digits_int8.onnx"), "--features", "none", "-o", str(tmp_path / "p.npu")]) == 0
    assert mapped == [1]
