"""Float models on the command line: `quantize`, and --calibrate of the commands that take a model."""

import json
import re
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from PIL import Image

from gen.cli import main
from gen.onnx.importer import load_model
from tests.gen.cli.calls import error_line
from tests.gen.float_models import FloatBuilder

pytestmark = pytest.mark.usefixtures("elsewhere")


@pytest.fixture
def model(digits: Path) -> str:
    return str(digits / "digits_float.onnx")


@pytest.fixture
def few(digits: Path, tmp_path: Path) -> str:
    """40 of the digits."""
    with np.load(digits / "digits_test.npz") as arrays:
        np.savez("few.npz", image=arrays["image"][:40], label=arrays["label"][:40])
    return "few.npz"


def test_quantize(model: str, few: str, capsys: pytest.CaptureFixture):
    """A file that onnxruntime and the machine run to the same labels, and what it has cost."""
    assert main(["quantize", model, "--calibrate", few, "--limit", "30", "--test", few, "-o", "q.onnx", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert (report["samples"], report["calibrated_on"], report["method"]) == (40, 30, "auto")
    assert report["accuracy_float"] >= 0.9 and report["accuracy_quantized"] >= 0.9
    assert [row["tensor"] for row in report["layers"]][-1] == "logits" and len(report["layers"]) == 10
    assert all(20 < row["sqnr_db"] for row in report["layers"])
    with np.load(few) as arrays:
        images, labels = arrays["image"], arrays["label"]
    theirs = ort.InferenceSession("q.onnx", providers=["CPUExecutionProvider"]).run(None, {"image": images})[0]
    assert (theirs.argmax(axis=1) == labels).mean() == report["accuracy_quantized"]
    assert main(["run", "q.onnx", "--features", "none", "--input", few, "-o", "y.npz", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["accuracy"] == report["accuracy_quantized"]
    with np.load("y.npz") as ours:
        assert (ours["logits"].argmax(axis=1) == theirs.argmax(axis=1)).all()


def test_the_table(model: str, few: str, capsys: pytest.CaptureFixture):
    options = ["--method", "percentile", "--percentile", "99.9", "--bias-correction", "--equalize"]
    assert main(["quantize", model, "--calibrate", few, *options, "-o", "q.onnx"]) == 0
    out, err = capsys.readouterr()
    assert "block2.sum" in out and "SQNR, dB" in out and "accuracy " in out
    assert "against the float model, 8 samples held out of calibration" in out and "logits 3" in out
    warning, last = err.splitlines()
    assert warning.startswith("warning: ranges clip more than they gain at pointwise of pointwise (")
    assert last == "q.onnx: quantised on 32 samples; 8 held out for the report"


@pytest.mark.slow
def test_compiled_at_once(model: str, few: str, capsys: pytest.CaptureFixture):
    """As with the file between: the program has the quantised model inside."""
    assert main(["quantize", model, "--calibrate", few, "--symmetric", "--per-tensor", "-o", "q.onnx"]) == 0
    calibrate = ["--calibrate", few, "--symmetric", "--per-tensor"]
    assert main(["compile", model, *calibrate, "--macs", "16", "-o", "once.npu"]) == 0
    assert main(["compile", "q.onnx", "--macs", "16", "-o", "twice.npu"]) == 0
    capsys.readouterr()
    results = []
    for given in (["once.npu"], ["twice.npu"], [model, *calibrate, "--macs", "16"]):
        assert main(["run", *given, "--input", few, "--limit", "2", "--target", "functional", "-o", "y.npz",
                     "--json"]) == 0
        assert json.loads(capsys.readouterr().out)["mismatches"] == 0
        with np.load("y.npz") as arrays:
            results.append(arrays["logits"])
    np.testing.assert_array_equal(results[0], results[1])
    np.testing.assert_array_equal(results[0], results[2])
    assert all(tensor.zero_point == 0 for tensor in load_model("q.onnx").graph.tensors.values())
    assert main(["profile", model, *calibrate, "--macs", "16", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["macs"] == 16


def test_a_folder_of_images(model: str, capsys: pytest.CaptureFixture):
    """As `run` takes an image; of a few it is said that they are few."""
    rng = np.random.default_rng(0)
    for label in range(3):
        Path(f"images/{label}").mkdir(parents=True)
        Image.fromarray(rng.integers(0, 256, (20, 20), np.uint8)).save(f"images/{label}/x.png")
    assert main(["quantize", model, "--calibrate", "images", "-o", "q.onnx", "--json"]) == 0
    out, err = capsys.readouterr()
    assert json.loads(out)["accuracy_float"] is not None
    assert err.splitlines()[0].startswith("3 images, the first images/0/x.png: 20 x 20 gray converted to 16 x 16 gray")
    assert err.splitlines()[1].startswith("images: warning: 3 samples are few to calibrate with")


def test_weights_in_another_file(few: str):
    b = FloatBuilder(np.random.default_rng(0), ["N", 1, 16, 16])
    model = b.model(b.same_conv("x", 1, 4, name="y"))
    model.graph.input[0].name = model.graph.node[0].input[0] = "image"
    onnx.save(model, "m.onnx", save_as_external_data=True, location="m.data", size_threshold=0)
    assert main(["quantize", "m.onnx", "--calibrate", few, "-o", "elsewhere/q.onnx"]) == 0
    Path("m.data").unlink()
    assert len(load_model("elsewhere/q.onnx").graph.layers) == 1


@pytest.mark.parametrize(("argv", "status", "message"), [
    (("quantize", "MODEL", "-o", "q.onnx"), 2, "required: --calibrate"),
    (("quantize", "MODEL", "--calibrate", "FEW", "-o", "MODEL"), 2, "would replace what is read"),
    (("quantize", "MODEL", "--calibrate", "FEW", "-o", "FEW"), 2, "would replace what is read"),
    (("quantize", "MODEL", "--calibrate", "none.npz", "-o", "q.onnx"), 1, "none.npz: No such file"),
    (("quantize", "MODEL", "--calibrate", ".", "-o", "q.onnx"), 1, ".: no images in it"),
    (("quantize", "MODEL", "--calibrate", "odd.npz", "-o", "q.onnx"), 1,
     "odd.npz: input image must have the shape (samples, 1, 16, 16), not (4, 3, 16, 16)"),
    (("quantize", "MODEL", "--calibrate", "other.npz", "-o", "q.onnx"), 1, "other.npz: has no array 'image'"),
    (("quantize", "MODEL", "--calibrate", "nan.npz", "-o", "q.onnx"), 1, "nan.npz: input image holds values that are"),
    (("quantize", "MODEL", "--calibrate", "inf.npz", "-o", "q.onnx"), 1,
     "digits_float.onnx: input image has samples that are infinite"),
    (("quantize", "MODEL", "--calibrate", "FEW", "--keep-float", "x", "-o", "q.onnx"), 1,
     "digits_float.onnx: there is no node x that could stay float"),
    (("quantize", "MODEL", "--calibrate", "FEW", "--percentile", "99", "-o", "q.onnx"), 2,
     "--percentile goes with --method percentile"),
    (("quantize", "MODEL", "--calibrate", "FEW", "--percentile", "5", "-o", "q.onnx"), 2,
     "percentile must be above 50"),
    (("compile", "MODEL", "-o", "p.npu"), 1, "give --calibrate with samples, or have `quantize` write"),
    (("compile", "MODEL", "--equalize", "-o", "p.npu"), 2, "--equalize is for float models, and goes with --calibrate"),
    (("compile", "INT8", "--features", "none", "--calibrate", "FEW", "-o", "p.npu"), 1,
     "is quantised already; leave out --calibrate"),
    (("compile", "INT8", "--features", "winograd", "--winograd", "narrow", "--calibrate", "FEW", "-o", "p.npu"), 1,
     "samples for narrow Winograd layers are --winograd-calibrate"),
    (("run", "INT8", "--features", "none", "--calibrate", "FEW", "--input", "FEW"), 1, "is quantised already"),
    (("profile", "MODEL", "--method", "mse"), 2, "--method is for float models, and goes with --calibrate"),
])
def test_refusals(argv: tuple[str, ...], status: int, message: str, model: str, few: str, digits: Path,
                  capsys: pytest.CaptureFixture):
    image = np.zeros((4, 1, 16, 16), np.float32)
    np.savez("odd.npz", image=np.zeros((4, 3, 16, 16), np.float32))
    np.savez("other.npz", x=image)
    np.savez("nan.npz", image=image + np.nan)
    np.savez("inf.npz", image=image + np.inf)
    before = Path(model).read_bytes(), Path(few).read_bytes()
    words = {"MODEL": model, "FEW": few, "INT8": str(digits / "digits_int8.onnx")}
    assert message in error_line(capsys, status, *(words.get(word, word) for word in argv))
    assert (Path(model).read_bytes(), Path(few).read_bytes()) == before
    assert not Path("q.onnx").exists() and not Path("p.npu").exists()


@pytest.mark.slow
def test_a_program_is_quantised_already(model: str, few: str, capsys: pytest.CaptureFixture):
    assert main(["compile", model, "--calibrate", few, "--macs", "16", "--no-check", "-o", "p.npu"]) == 0
    capsys.readouterr()
    line = error_line(capsys, 2, "run", "p.npu", "--calibrate", few, "--input", few)
    assert "p.npu: a program is quantised already; --calibrate goes with a float model" in line


def test_classes_as_the_only_output(rng: np.random.Generator, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    """Segmentation with its ArgMax: judged by the classes that stay the same, of so many that not all do."""
    b = FloatBuilder(rng, ["n", 3, 32, 32])
    y = b.same_conv(b.node("Relu", b.same_conv("x", 3, 6)), 6, 4)
    model = b.model(y)
    model.graph.node.append(onnx.helper.make_node("ArgMax", [y], ["classes"], name="classes", axis=1, keepdims=0))
    model.graph.output[0].CopyFrom(onnx.helper.make_tensor_value_info("classes", onnx.TensorProto.INT64, None))
    onnx.save(model, tmp_path / "m.onnx")
    np.savez(tmp_path / "x.npz", x=rng.normal(size=(12, 3, 32, 32)).astype(np.float32))
    given = [str(tmp_path / "m.onnx"), "--calibrate", str(tmp_path / "x.npz")]
    for command, result in (("quantize", "q.onnx"), ("compile", "m.npu")):
        assert main([command, *given, "-o", str(tmp_path / result)]) == 0
        assert re.search(r"on 2 .*held out: \S+ 9\d\.\d% of the values alike", " ".join(
            "".join(capsys.readouterr()).split()))
    assert main(["quantize", *given, "-o", str(tmp_path / "r.onnx"), "--max-loss", "0"]) == 1
    assert not (tmp_path / "r.onnx").exists()
