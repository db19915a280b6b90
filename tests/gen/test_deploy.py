"""Packages for boards: what is in them, and that they run with Python and NumPy alone."""

import ast
import json
import re
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import numpy as np
import pytest

from boards.registry import get_board
from cores.config import NpuConfig
from gen.cli import main
from gen.deploy.notebook import notebook
from gen.hw.logs import standing
from npudriver import Device, PackageError
from npudriver.model import Deployment, HostFile
from sim.devices import FunctionalBackend
from tests.conftest import ROOT
from tests.gen.cli.calls import error_line
from tests.gen.qdq import Builder
from tests.npudriver.serving import serving

CONFIG = NpuConfig.preset(16)

#: What a board need not have; the driver's folder is looked at first, where it is run from.
_GUARD = """
import runpy, sys

class Guard:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {missing!r}:
            raise ModuleNotFoundError(name + " is not on a board", name=name)

sys.meta_path.insert(0, Guard())
sys.argv = ["run.py", *sys.argv[1:]]
runpy.run_path("run.py", run_name="__main__")
"""
_MISSING = ("amaranth", "boards", "cores", "gen", "jinja2", "msgspec", "onnx", "rich", "sim")


@pytest.fixture
def model(tmp_path: Path, rng: np.random.Generator) -> Path:
    """Two layers, float at both ends."""
    b = Builder(rng)
    real = b.requantize(b.input(1, 3, 6, 6, number=np.float32), zero_point=3)
    real = b.requantize(b.node("Conv", real, b.weights(8, 3, 3, 3), pads=[1, 1, 1, 1]))
    b.output(b.requantize(b.node("Conv", real, b.weights(4, 8, 1, 1))), np.float32)
    (tmp_path / "made").mkdir()
    return b.save(tmp_path / "made")


def deploy(model: Path, output: Path, *options: str) -> int:
    return main(["deploy", str(model), "--macs", "16", "-o", str(output), *options])


def on_board(folder: Path, *arguments: str, without: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
    code = _GUARD.format(missing={*_MISSING, *without})
    return subprocess.run([sys.executable, "-c", code, *arguments], cwd=folder, capture_output=True, text=True,
                          env={"PYTHONSAFEPATH": "1", "PATH": "/usr/bin:/bin"})


def test_a_package_runs_with_python_and_numpy_alone(model, tmp_path, rng):
    """The enclosed sample, and samples of one's own, whose outputs are those of `gen run`."""
    folder = tmp_path / "package"
    assert deploy(model, folder) == 0
    name = next(iter(Deployment.load(folder).inputs))
    np.savez(tmp_path / "x.npz", **{name: rng.normal(0, 2, (3, 3, 6, 6)).astype(np.float32)})
    with serving(FunctionalBackend(CONFIG)) as url:
        done = on_board(folder, "--device", url, "--json")
        assert (done.returncode, done.stderr) == (0, "")
        assert json.loads(done.stdout)["differing"] == 0
        done = on_board(folder, "--device", url, "--input", str(tmp_path / "x.npz"), "-o", str(tmp_path / "y.npz"))
        assert (done.returncode, done.stderr) == (0, "")
    assert main(["run", str(model), "--macs", "16", "--input", str(tmp_path / "x.npz"), "--target", "board:functional",
                 "-o", str(tmp_path / "z.npz")]) == 0
    found, wanted = np.load(tmp_path / "y.npz"), np.load(tmp_path / "z.npz")
    assert found.files == wanted.files
    for output in wanted.files:
        np.testing.assert_array_equal(found[output], wanted[output])


def test_without_numpy(model, tmp_path):
    folder = tmp_path / "package"
    assert deploy(model, folder) == 0
    done = on_board(folder, without=("numpy",))
    assert (done.returncode, done.stderr) == (1, "run.py: error: the package numpy is missing: pip install numpy\n")


def test_a_wrong_result_is_found(model, tmp_path):
    folder = tmp_path / "package"
    assert deploy(model, folder) == 0
    arrays = dict(np.load(folder / "sample.npz"))
    expected = next(name for name in arrays if name.startswith("expected/"))
    arrays[expected].reshape(-1)[0] += 1
    np.savez(folder / "sample.npz", **arrays)
    with serving(FunctionalBackend(CONFIG)) as url:
        done = on_board(folder, "--device", url)
    assert done.returncode == 1 and "differing 1" in done.stdout


def test_the_same_files_every_time(model, tmp_path):
    """As a folder, and as an archive of one."""
    for number in (1, 2):
        assert deploy(model, tmp_path / str(number) / "p") == 0
        assert deploy(model, tmp_path / str(number) / "p.tar.gz") == 0
    assert (tmp_path / "1" / "p.tar.gz").read_bytes() == (tmp_path / "2" / "p.tar.gz").read_bytes()
    first, second = (sorted(path for path in (tmp_path / number / "p").rglob("*") if path.is_file())
                     for number in "12")
    assert [path.read_bytes() for path in first] == [path.read_bytes() for path in second]
    with tarfile.open(tmp_path / "1" / "p.tar.gz") as archive:
        members = {member.name: archive.extractfile(member).read() for member in archive if member.isfile()}
    assert members == {f"p/{path.relative_to(tmp_path / '1' / 'p')}": path.read_bytes() for path in first}


@pytest.fixture
def partitioned(tmp_path: Path, rng: np.random.Generator) -> Path:
    """A convolution, and a Sigmoid for the processor after it."""
    b = Builder(rng)
    real = b.requantize(b.node("Conv", b.requantize(b.input(1, 4, 6, 6, number=np.float32), zero_point=0),
                               b.weights(4, 4, 3, 3), pads=[1, 1, 1, 1]), zero_point=0)
    b.output(b.node("Sigmoid", b.node("Erf", real)), np.float32)
    (tmp_path / "made").mkdir()
    return b.save(tmp_path / "made")


def test_the_processors_part(partitioned, tmp_path):
    folder = tmp_path / "package"
    assert deploy(partitioned, folder) == 0
    deployment = Deployment.load(folder)
    assert [isinstance(segment, HostFile) for segment in deployment.segments] == [False, True]
    with serving(FunctionalBackend(CONFIG)) as url:
        done = on_board(folder, "--device", url, "--json")
        assert (done.returncode, done.stderr) == (0, "")
        assert json.loads(done.stdout)["differing"] == 0
        done = on_board(folder, "--device", url, without=("onnxruntime",))
    assert done.returncode == 1
    assert done.stderr == ("npudriver run: error: a part of this model runs on the processor, by onnxruntime, which is "
                           "missing here: pip install onnxruntime [missing-package]\n")


@pytest.mark.parametrize("board, bits", [("zynq7020", 32), ("pynq-z2", 32), ("cyclonev", 32), ("zu3eg", 64),
                                         ("ecp5", 64)])
def test_no_runtime_for_a_processor_of_32_bits(partitioned, tmp_path, capsys, board, bits):
    """It is said before the package is on the board, and in it."""
    assert deploy(partitioned, tmp_path / "p", "--board", board) == 0
    said = capsys.readouterr().err
    text = (tmp_path / "p" / "README.txt").read_text()
    for place in (said, text):
        assert ("there is no onnxruntime wheel for 32-bit ARM: " in place) == (bits == 32)
    assert ("or take --language c, a board of 64 bits" in said) == (bits == 32) and said.count("\n") == (bits == 32)


def test_the_processor_has_nothing_to_run(model, tmp_path, capsys):
    assert deploy(model, tmp_path / "p", "--board", "zynq7020") == 0
    said = capsys.readouterr()
    assert "onnxruntime" not in said.err + (tmp_path / "p" / "README.txt").read_text()
    assert f"{model.stem} for zynq7020, 16 MACs, features none; copy it to the board" in said.out


def test_a_hint_for_a_processor_of_32_bits(partitioned, tmp_path, monkeypatch):
    """Where it runs: nothing is to be installed that there is not."""
    assert deploy(partitioned, tmp_path / "p") == 0
    deployment = Deployment.load(tmp_path / "p")
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    monkeypatch.setattr("npudriver.host.sys.maxsize", (1 << 31) - 1)
    with Device(FunctionalBackend(CONFIG), deployment.machine) as device, pytest.raises(PackageError) as error:
        deployment.load_into(device)
    assert "no onnxruntime wheel for 32-bit ARM" in str(error.value) and "pip install" not in str(error.value)


def test_several_samples_are_under_way_in_segments(partitioned, tmp_path, rng):
    folder = tmp_path / "package"
    assert deploy(partitioned, folder) == 0
    deployment = Deployment.load(folder)
    (name,) = deployment.inputs
    wanted = rng.normal(0, 2, (5, 4, 6, 6)).astype(np.float32)
    with Device(FunctionalBackend(CONFIG), deployment.machine) as device, deployment.load_into(device) as model:
        streamed = list(model.stream({name: x} for x in wanted))
        for found, x in zip(streamed, wanted, strict=True):
            for output, value in model.run({name: x}).items():
                np.testing.assert_array_equal(found[output], value)
        with pytest.raises(PackageError, match="input .* is missing"):
            model.run({})


def test_a_variant_of_a_folder(model, tmp_path, capsys):
    shutil.copy(model, tmp_path / "made" / "01-stage-1.onnx")
    assert deploy(model.parent, tmp_path / "out", "--variant", "01-stage-1") == 0
    assert deploy(tmp_path / "made" / "01-stage-1.onnx", tmp_path / "same") == 0
    names = sorted(path.name for path in (tmp_path / "out").iterdir())
    assert names == sorted(path.name for path in (tmp_path / "same").iterdir())
    assert (tmp_path / "out/model.json").read_bytes() == (tmp_path / "same/model.json").read_bytes()
    capsys.readouterr()
    for given, message in ((model.parent, "--variant must be one of 01-stage-1, model, not ../x"),
                           (model, "--variant goes with a folder that `train --variants` filled"),
                           (tmp_path / "nothing", "--variant goes with a folder")):
        other = tmp_path / "other"
        said = error_line(capsys, 2, "deploy", str(given), "-o", str(other), "--variant", "../x")
        assert message in said and not other.exists()


def test_what_is_refused(model, tmp_path, capsys):
    full = tmp_path / "full"
    full.mkdir()
    (full / "file").write_text("kept")
    assert "must be a new or an empty folder, or a .tar.gz" in error_line(
        capsys, 2, "deploy", str(model), "--macs", "16", "-o", str(full))
    assert [path.name for path in full.iterdir()] == ["file"]
    error_line(capsys, 1, "deploy", str(tmp_path / "no.onnx"), "-o", str(tmp_path / "package"))
    assert not (tmp_path / "package").exists()


@pytest.mark.parametrize("target, status, message", [
    ("gpu", 2, "must be reference, functional, rtl, or board"),
    ("board:gpio:1", 1, "a device is given as uio:"),
    ("board:tcp://127.0.0.1:1", 1, "Connection refused"),
    ("board", 1, "no UIO device is called npu"),
])
def test_boards_that_are_not_there(model, tmp_path, capsys, target, status, message):
    np.savez(tmp_path / "x.npz", x=np.zeros((1, 3, 6, 6), np.float32))
    assert message in error_line(capsys, status, "run", str(model), "--macs", "16", "--input", str(tmp_path / "x.npz"),
                                 "--target", target)


@pytest.mark.parametrize("damage", ["model.json", "machine.json", "program0/program.json", "program0/code.bin"])
@pytest.mark.parametrize("text", [None, "", "{}", "[1]", '{"format": 3}', "\0"])
def test_damaged_packages(model, tmp_path, damage, text):
    folder = tmp_path / "package"
    assert deploy(model, folder) == 0
    if text is None:
        (folder / damage).unlink()
    else:
        (folder / damage).write_text(text)
    with pytest.raises(PackageError):
        Deployment.load(folder)


@pytest.mark.parametrize("path", sorted((ROOT / "npudriver").rglob("*.py")), ids=lambda path: path.name)
def test_the_driver_is_python_3_8(path):
    """Its syntax; annotations are not evaluated. Modules: those of 3.8, NumPy, and its own."""
    tree = ast.parse(path.read_text(), feature_version=(3, 8))
    future = [node for node in tree.body if isinstance(node, ast.ImportFrom) and node.module == "__future__"]
    assert future or path.name == "__init__.py"
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and not node.level:
            names = [str(node.module)]
        else:
            continue
        assert all(name.partition(".")[0] in {*sys.stdlib_module_names, "numpy"} for name in names)


@pytest.fixture(scope="module")
def build(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("build") / "npu"
    assert main(["build", "--board", "zu3eg", "--macs", "16", "-o", str(folder)]) == 0
    return folder


@pytest.fixture
def built(build: Path, tmp_path: Path) -> Path:
    """A build of the machine, whose bitstream has been made: what the vendor's tool leaves is there."""
    folder = tmp_path / "npu"
    shutil.copytree(build, folder)
    for name in ("npu.bit", "npu.hwh", "npu.bit.bin"):
        (folder / name).write_text(name)
    return folder


@pytest.mark.rtl
def test_the_bitstream_goes_with_it(model, built, tmp_path):
    """For the machine of the build, with the overlay that was built for it; the same bytes as an archive."""
    folder = tmp_path / "package"
    assert main(["deploy", str(model), "-o", str(folder), "--hardware", str(built)]) == 0
    names = {path.name for path in (folder / "hardware").iterdir()}
    assert names == {"npu.bit", "npu.hwh", "npu.bit.bin", "npu.dtso", "load.sh"}
    for name in names:
        assert (folder / "hardware" / name).read_bytes() == (built / name).read_bytes()
    text = (folder / "README.txt").read_text()
    assert "sudo sh hardware/load.sh " in text and "--device pynq:hardware/npu.bit " in text
    assert standing("zu3eg") in text and "run.ipynb" in text and (folder / "run.ipynb").is_file()
    Deployment.load(folder)


def test_the_notebook_runs(model, tmp_path, monkeypatch, capsys):
    """A notebook of nbformat 4.5 whose cells, run in turn, find the outputs of the reference."""
    folder = tmp_path / "package"
    assert deploy(model, folder, "--board", "zu3eg") == 0
    assert not (folder / "run.ipynb").exists(), "without a bitstream there is nothing that PYNQ could load"
    values = json.loads(notebook(Deployment.load(folder)))
    assert (values["nbformat"], values["nbformat_minor"]) == (4, 5) and values["metadata"]["kernelspec"]["name"]
    names = [cell["id"] for cell in values["cells"]]
    assert len(set(names)) == len(names) and all(re.fullmatch("[A-Za-z0-9_-]{1,64}", name) for name in names)
    kinds = {"markdown": {"cell_type", "id", "metadata", "source"},
             "code": {"cell_type", "id", "metadata", "source", "execution_count", "outputs"}}
    assert all(set(cell) == kinds[cell["cell_type"]] for cell in values["cells"])
    assert standing("zu3eg") in "".join(values["cells"][0]["source"])

    opened = []
    config = get_board("zu3eg").config(16)
    monkeypatch.setattr("npudriver.open_backend", lambda url: opened.append(url) or FunctionalBackend(config))
    monkeypatch.chdir(folder)
    names = {}
    capsys.readouterr()
    for cell in values["cells"]:
        if cell["cell_type"] == "code":
            exec(compile("".join(cell["source"]), cell["id"], "exec"), names)
    said = capsys.readouterr().out
    assert opened == ["pynq:hardware/npu.bit"]
    assert "\ndiffering 0\n" in said and "inferences a second" in said


@pytest.mark.rtl
@pytest.mark.parametrize("change, options, said", [
    (["npu.bit.bin", "npu.bit"], [], "has neither npu.bit.bin nor npu.bit and npu.hwh: let the board's tool make"),
    (["manifest.json"], [], "is no build, or damaged"),
    ([], ["--board", "kv260"], "was built for the board zu3eg, not for kv260"),
    ([], ["--features", "gather"], "is another machine than that of the program; compile it with --config"),
    ([], ["--board", "ecp5"], "ecp5 has no processor that could load it; its host does"),
])
def test_a_bitstream_of_something_else(model, built, tmp_path, capsys, change, options, said):
    for name in change:
        (built / name).unlink()
    line = error_line(capsys, 1, "deploy", str(model), "--macs", "16", "--board", "zu3eg", "-o", str(tmp_path / "p"),
                      "--hardware", str(built), *options)
    assert said in line and not (tmp_path / "p").exists()
