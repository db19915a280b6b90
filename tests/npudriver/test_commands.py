"""The driver's own commands, and the device that takes time and computes nothing."""

import dataclasses
import json
import os
import re
from pathlib import Path

import numpy as np
import pytest

import npudriver.__main__ as commands
from gen.program.file import save_program
from npudriver import Device, PackageError
from npudriver.arrays import write_arrays
from npudriver.model import Deployment
from sim.devices import FunctionalBackend, InjectedFault, PacedBackend
from tests.npu_files import reseal, write_files

from .small import CONFIG, cycles, expected, machine_of_json, program, samples, workload


@pytest.fixture
def backend(monkeypatch: pytest.MonkeyPatch) -> FunctionalBackend:
    """What every URL opens."""
    backend = FunctionalBackend(CONFIG)
    monkeypatch.setattr(commands, "open_backend", lambda url: backend)
    return backend


@pytest.fixture
def package(tmp_path: Path, rng: np.random.Generator) -> Path:
    """A model and three samples."""
    deployment = Deployment(name="small", board="b", device="uio:", machine=machine_of_json(),
                            inputs={"x": ("uint8", [4, 6, 6])}, outputs=[program().outputs[0].name],
                            segments=[program()])
    deployment.save(tmp_path)
    wanted = samples(rng, 3)
    np.savez(tmp_path / "sample.npz", x=[inputs["x"] for inputs in wanted], **{
        f"expected/{deployment.outputs[0]}": [expected(inputs) for inputs in wanted]})
    return tmp_path


def test_run(backend, package, capsys):
    assert commands.main(["run", str(package), "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert (facts["samples"], facts["differing"]) == (3, 0)
    assert commands.main(["run", str(package), "--limit", "2"]) == 0
    assert re.fullmatch(r"samples 2, seconds [\d.]+, per_second [\d.]+, differing 0\n", capsys.readouterr().out)


def test_a_program_file(backend, tmp_path, rng, capsys):
    """As `gen compile` has made it, without more."""
    save_program(workload().program, tmp_path / "small.npu")
    (sample,) = samples(rng, 1)
    np.savez(tmp_path / "x.npz", x=[sample["x"]])
    argv = ["run", str(tmp_path / "small.npu"), "--input", str(tmp_path / "x.npz"), "-o", str(tmp_path / "y.npz")]
    assert commands.main(argv) == 0
    (found,) = np.load(tmp_path / "y.npz").values()
    assert np.array_equal(found[0], expected(sample))
    assert commands.main(["info", str(tmp_path / "small.npu")]) == 0
    capsys.readouterr()
    assert commands.main(["run", str(tmp_path / "small.npu")]) == 1
    assert "small.npu: has no samples; name some with --input" in capsys.readouterr().err
    (tmp_path / "small.npu").write_bytes((tmp_path / "small.npu").read_bytes()[:-30])
    assert commands.main(argv) == 1
    assert "small.npu: not a program, or damaged" in capsys.readouterr().err


@pytest.mark.parametrize("url, taken", [
    ("uio:", True), ("uio:npu", True), ("tcp://localhost:1234", True), ("tcp://example.org:1234", False),
    ("uio:npu?dev=/home", False), ("uio:/dev/mem", False), ("pynq:/x.bit", False),
    ("tcp://localhost@example.org", False),
])
def test_the_device_that_a_file_asks_for(url, taken, package, backend, capsys):
    """Its inputs go nowhere that only the file has named."""
    changed = json.loads((package / "model.json").read_text())
    reseal(package / "model.json", {name: url if name == "device" else value for name, value in changed.items()
                                    if name not in ("files", "sha256")})
    assert commands.main(["run", str(package)]) == (0 if taken else 1)
    assert taken or "give it as --device" in capsys.readouterr().err
    assert commands.main(["run", str(package), "--device", url]) == 0


def test_retries(backend, package, capsys):
    backend.faults.append(InjectedFault.READ_ERROR)
    assert commands.main(["run", str(package)]) == 1
    error = capsys.readouterr().err
    assert error.startswith("npudriver run: error: program small0: READ_SLVERR at instruction 0, LOAD_")
    assert error.count("\n") == 1
    backend.faults.append(InjectedFault.READ_ERROR)
    assert commands.main(["run", str(package), "--retries", "1"]) == 0


def test_info(backend, package, capsys):
    assert commands.main(["info", str(package)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["id", "0x4e505547"]
    assert {line.split()[0] for line in lines} >= {"status", "error_code", "cycles", "read_beats"}


@pytest.mark.parametrize("argv, message", [
    (["run", "."], "not a deployed model, or damaged"),
    (["run", "PACKAGE", "--input", "/nowhere.npz"], "/nowhere.npz: not an .npz file"),
    (["run", "PACKAGE", "--input", "EMPTY"], "has no array x; it has y"),
    (["run", "PACKAGE", "--input", "UNEVEN"], "samples on their first axes, as many each: x has 0"),
    (["run", "PACKAGE", "--input", "ZIP"], "zip.npz: not an .npz file, or damaged"),
    (["run", "PACKAGE", "--input", "CUT"], "cut.npz: not an .npz file, or damaged"),
    (["serve", "--listen", "here"], "--listen here: must be ADDRESS:PORT"),
])
def test_errors_are_one_line(backend, package, capsys, argv, message):
    np.savez(package / "empty.npz", y=0)
    np.savez(package / "uneven.npz", x=np.zeros((0, 4, 6, 6), np.uint8))
    (package / "zip.npz").write_bytes(b"PK\3\4" + bytes(40))
    whole = (package / "sample.npz").read_bytes()
    (package / "cut.npz").write_bytes(whole[:60] + bytes(20) + whole[80:])
    places = {"PACKAGE": str(package), **{name.upper(): str(package / f"{name}.npz")
                                          for name in ("empty", "uneven", "zip", "cut")}}
    assert commands.main([places.get(word, word) for word in argv]) == 1
    error = capsys.readouterr().err
    assert message in error and error.count("\n") == 1


def test_program_files_that_are_none(backend, tmp_path, capsys):
    """Nobody is told to look for a folder, and no pipe is waited for."""
    os.mkfifo(tmp_path / "pipe.npu")
    (tmp_path / "loop.npu").symlink_to("loop.npu")
    write_files(tmp_path / "old.npu", {"program.json": b"{}"})
    write_files(tmp_path / "zip.npu", {"a": b""})
    for name, message in (
            ("none", "No such file or directory [unreadable-file]"), ("pipe", "not a regular file [unreadable-file]"),
            ("loop", "Too many levels of symbolic links [unreadable-file]"),
            ("old", "made by another version of the compiler; compile it again [old-package]"),
            ("zip", "not a program (a zip file without model.json) [not-a-program]")):
        for command in ("run", "info"):
            assert commands.main([command, str(tmp_path / f"{name}.npu")]) == 1
            assert capsys.readouterr().err == f"npudriver {command}: error: {tmp_path}/{name}.npu: {message}\n"


@pytest.mark.parametrize("option, value, message", [
    ("--limit", "0", "must be at least 1, not 0"),
    ("--slots", "0", "must be at least 1, not 0"),
    ("--timeout", "nan", "must be a number of seconds above 0, not nan"),
    ("--timeout", "-1", "must be a number of seconds above 0, not -1"),
    ("-o", "y.txt", "outputs are written as .npz, not as y.txt"),
    ("-o", "/nowhere/y.npz", "/nowhere: no such folder, or not writable"),
])
def test_bad_arguments(package, capsys, option, value, message):
    with pytest.raises(SystemExit) as stopped:
        commands.main(["run", str(package), f"{option}={value}" if option != "-o" else f"-o{value}"])
    assert stopped.value.code == 2 and message in capsys.readouterr().err


def test_outputs_are_written_whole_or_not_at_all(backend, package, monkeypatch):
    """Under the model's names, whatever they are; and what was there before stays when something goes wrong."""
    target = package / "y.npz"
    assert commands.main(["run", str(package), "-o", str(target)]) == 0
    (name,) = Deployment.load(package).outputs
    assert np.load(target)[name].shape[0] == 3
    before = target.read_bytes()
    monkeypatch.setattr("npudriver.arrays.zipfile.ZipFile.open", lambda *arguments, **options: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        write_arrays(target, {"file": np.zeros(3)})
    assert target.read_bytes() == before and not list(package.glob(".*"))
    monkeypatch.undo()
    write_arrays(target, {"file": np.zeros(3)})
    assert np.load(target)["file"].shape == (3,)


def test_a_lone_number_among_the_samples(backend, package):
    arrays = dict(np.load(package / "sample.npz"))
    np.savez(package / "x.npz", **arrays, scale=0.5, label=7)
    assert commands.main(["run", str(package), "--input", str(package / "x.npz"), "--limit", "1"]) == 0


@pytest.mark.parametrize("damage", [{"data_beats": 0}, {"write_start": 1 << 20}, {"code": b""}, {"code": b"123"}])
def test_a_program_that_cannot_be(backend, damage):
    with Device(backend, machine_of_json()) as device:
        free = backend.memory._arena.free_bytes
        with pytest.raises(PackageError, match="program small0 is damaged: its sizes do not go together"):
            device.load(dataclasses.replace(program(), **damage))
        assert backend.memory._arena.free_bytes == free


def test_time_that_a_device_takes(rng):
    """A millisecond an inference: what the host does meanwhile costs nothing with two slots, but for the first."""
    clock = cycles() / 1e-3
    taken = {}
    for slots in (1, 2):
        backend = PacedBackend(CONFIG, clock_hz=clock)
        with Device(backend, machine_of_json()) as device:
            loaded, wanted = device.load(program(), slots=slots), samples(rng, 20)
            began = backend.time()
            inferences = [loaded.submit(inputs) for inputs in wanted]
            inferences[-1].wait()
            taken[slots] = backend.time() - began
        assert all(inference.cycles == cycles() for inference in inferences)
    assert min(taken.values()) >= 20e-3
