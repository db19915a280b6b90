"""Damaged packages: each is one line that says so, whatever is damaged and however; and none is run."""

import dataclasses
import hashlib
import json
import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import npudriver.__main__ as commands
from npudriver import Deployment, Device, PackageError
from npudriver.model import MAX_SEGMENTS
from npudriver.program import Step
from npudriver.storage import Storage
from sim.devices import FunctionalBackend
from tests.npu_files import reseal

from .small import CONFIG, expected, machine_of_json, program, samples

FILES = ("model.json", "machine.json", "program0/program.json", "program0/code.bin", "program0/data.bin")


@pytest.fixture
def package(tmp_path: Path, rng: np.random.Generator) -> Path:
    """A model and a sample."""
    folder = tmp_path / "package"
    deployment = Deployment(name="small", board="b", device="uio:", machine=machine_of_json(),
                            inputs={"x": ("uint8", [4, 6, 6])}, outputs=[program().outputs[0].name],
                            segments=[program()])
    deployment.save(folder)
    (sample,) = samples(rng, 1)
    np.savez(folder / "sample.npz", x=[sample["x"]], **{f"expected/{deployment.outputs[0]}": [expected(sample)]})
    return folder


def refused(folder: Path) -> str:
    """What is said of a package that is not run."""
    with pytest.raises(PackageError) as error:
        deployment = Deployment.load(folder)
        with Device(FunctionalBackend(CONFIG), deployment.machine) as device:
            deployment.load_into(device)
    text = str(error.value)
    assert text.count("\n") == 0 and text.isprintable() and len(text) < 400
    return text


@pytest.mark.parametrize("name", FILES)
def test_a_bit(package, name, seed):
    """Anywhere in any file: it is found, before anything goes to the device."""
    chance = random.Random(seed)
    whole = (package / name).read_bytes()
    for _ in range(25):
        content = bytearray(whole)
        content[chance.randrange(len(content))] ^= 1 << chance.randrange(8)
        (package / name).write_bytes(content)
        with pytest.raises(PackageError):
            Deployment.load(package)
    (package / name).write_bytes(whole)
    Deployment.load(package)


def _folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def _pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def _away(path: Path) -> None:
    """The same content, out of the package."""
    outside = next(parent for parent in path.parents if parent.name == "package").with_name(path.name)
    path.rename(outside)
    path.symlink_to(outside)


def _loop(path: Path) -> None:
    path.unlink()
    path.symlink_to(path.name)


def _large(path: Path) -> None:
    """A terabyte, of which nothing is written."""
    with path.open("r+b") as file:
        file.truncate(1 << 40)


DAMAGES: dict[str, tuple[Callable[[Path], Any], str]] = {
    "missing": (Path.unlink, "No such file or directory"),
    "empty": (lambda path: path.write_bytes(b""), "damaged"),
    "cut": (lambda path: path.write_bytes(path.read_bytes()[:-1]), "damaged"),
    "longer": (lambda path: path.write_bytes(path.read_bytes() + b"\0"), "damaged"),
    "a folder": (_folder, "Is a directory"),
    "a pipe": (_pipe, "not a regular file"),
    "a device": (lambda path: (path.unlink(), path.symlink_to("/dev/zero")), "leads out of the package"),
    "a link elsewhere": (_away, "leads out of the package"),
    "a link to itself": (_loop, ""),
    "a terabyte": (_large, ""),
}


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("damage", DAMAGES)
def test_a_file(package, name, damage):
    change, said = DAMAGES[damage]
    change(package / name)
    text = refused(package)
    assert said in text and str(package / name) in text


def test_links(package):
    """One within the folder is a file like any other; a program elsewhere is none of the package."""
    path = package / "program0" / "code.bin"
    path.rename(path.with_name("code"))
    path.symlink_to("code")
    Deployment.load(package)
    path.parent.rename(package.with_name("elsewhere"))
    path.parent.symlink_to("../elsewhere")
    assert "leads out of the package" in refused(package)


@pytest.mark.parametrize("text, said", [
    (b"\xff\xfe{}", "damaged ('utf-8' codec can't decode"),
    (b'{"format": ' + b"9" * 4301 + b"}", "damaged (a number of 4,301 digits)"),
    (b"[" * 100_000, "damaged (nested too deeply)"),
    (b'{"a": NaN}', "damaged (NaN is no number)"),
    (b"[1]", "must be an object, not [1]"),
    (b"{}", "has no field 'format'"),
    (b'{"format": "npugen deployed model", "version": 1}', "made by another version"),
    (b'{"format": "npugen deployed program", "version": 1}', "made by another version"),
])
@pytest.mark.parametrize("name", ["model.json", "program0/program.json"])
def test_no_such_json(package, name, text, said):
    (package / name).write_bytes(text)
    if name != "model.json":    # its digest would be seen first
        reseal(package / "model.json")
    assert said in refused(package)


def _places(value: Any, path: tuple = ()) -> list[tuple]:
    """Every field of a JSON value; of long lists, the first."""
    found = [path] if path else []
    items = value.items() if isinstance(value, dict) else enumerate(value[:2]) if isinstance(value, list) else ()
    for key, item in items:
        found += _places(item, (*path, key))
    return found


WRONG = [None, True, -1, 1 << 40, 10 ** 19, 0.5, "", "../../x", "\x1b[2J\n", [], [[]], {}, {"a": 1}, [1 << 62] * 40]


@pytest.mark.parametrize("name", ["model.json", "machine.json", "program0/program.json"])
def test_every_field_of_other_types(package, name, seed):
    """With digests of their own: what is read is one that can be, or is refused in a line. A name may be any text."""
    whole = json.loads((package / name).read_text())
    for digest in ("sha256", "files"):
        whole.pop(digest, None)
    kept = {path: path.read_bytes() for path in package.rglob("*.json")}
    refusals = 0
    places = [place for place in _places(whole) if not (name == "machine.json" and place[0] in (
        "errors", "operations", "registers") and len(place) > 1 and place[1] not in ("0", "1", "status"))]
    chance, tries = random.Random(seed), 4
    for place in places:
        for wrong in chance.sample([*WRONG, "gone"], tries):
            changed = json.loads(json.dumps(whole))
            container = changed
            for key in place[:-1]:
                container = container[key]
            if wrong == "gone":
                del container[place[-1]]
            else:
                container[place[-1]] = wrong
            if name == "machine.json":
                (package / name).write_text(json.dumps(changed))
            else:
                reseal(package / name, changed)
            if name != "model.json":
                reseal(package / "model.json")
            try:
                deployment = Deployment.load(package)
                with Device(FunctionalBackend(CONFIG), deployment.machine) as device:
                    deployment.load_into(device)
            except Exception as error:
                refusals += 1
                assert type(error).__module__ == "npudriver.errors", (place, wrong, error)
                assert "\n" not in commands._printable(str(error)), (place, wrong)
    assert refusals > tries * len(places) // 2
    for path, content in kept.items():
        path.write_bytes(content)
    Deployment.load(package)


@pytest.mark.parametrize("path", ["..", ".", "", "/etc", "../package/program0", "program0/", "program0\0"])
def test_paths_out_of_the_package(package, path):
    header = json.loads((package / "model.json").read_text())
    header["segments"][0]["path"] = path
    reseal(package / "model.json", {name: value for name, value in header.items() if name not in ("files", "sha256")})
    assert "path must be a name in the package" in refused(package)


def _segments(package: Path, segments: list[dict[str, str]]) -> None:
    header = json.loads((package / "model.json").read_text())
    header["segments"] = segments
    reseal(package / "model.json", {name: value for name, value in header.items() if name not in ("files", "sha256")})


def test_segments_have_an_end(package):
    """Each is read: one that is named again and again would take memory each time, of the device's as well."""
    program = {"place": "accelerator", "path": "program0"}
    _segments(package, [program, program])
    assert "path must be that of no other segment" in refused(package)
    (package / "s.onnx").write_bytes(b"")
    header = json.loads((package / "model.json").read_text())
    for number in range(MAX_SEGMENTS + 1):
        header["files"][f"s{number}.onnx"] = {}
        (package / f"s{number}.onnx").write_bytes(b"")
    (package / "model.json").write_text(json.dumps(header))
    hosts = [{"place": "host", "path": f"s{number}.onnx"} for number in range(MAX_SEGMENTS)]
    _segments(package, hosts)
    assert len(Deployment.load(package).segments) == MAX_SEGMENTS
    _segments(package, [*hosts, program])
    assert f"has more than {MAX_SEGMENTS} segments" in refused(package)


def test_arrays_have_an_end_together(tmp_path, monkeypatch):
    """They are compressed: each program of a small file could unpack as much as one may have."""
    index = np.zeros(100_000, np.int64)
    ports = [dataclasses.replace(port, steps=[Step("gather", {"index": index})]) for port in program().inputs]
    one = dataclasses.replace(program(), inputs=ports)
    Deployment(name="two", board="b", device="uio:", machine=machine_of_json(), inputs={"x": ("uint8", [4, 6, 6])},
               outputs=["y"], segments=[one, one]).save(tmp_path)
    assert len(Deployment.load(tmp_path).segments) == 2
    monkeypatch.setattr(Storage, "room", 3 * index.nbytes // 2)
    with pytest.raises(PackageError, match=r"program1/arrays.npz: .*more than [\d,]+ bytes of arrays"):
        Deployment.load(tmp_path)


def test_digests_are_those_of_any_tool(package):
    """And the program's are in its own file: a folder of a program is one that can be copied by itself."""
    for file, names in (("model.json", {"machine.json", "program0/program.json"}),
                        ("program0/program.json", {"code.bin", "data.bin"})):
        path = package / file
        listed = json.loads(path.read_text())["files"]
        assert listed.keys() == names
        for name, entry in listed.items():
            content = (path.parent / name).read_bytes()
            assert entry == {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}


def test_a_program_of_another_package(package, tmp_path):
    """Is whole, and not this model's."""
    other = tmp_path / "other"
    Deployment(name="other", board="b", device="uio:", machine=machine_of_json(), inputs={"x": ("uint8", [4, 6, 6])},
               outputs=["y"], segments=[program(1)]).save(other)
    (package / "program0").rename(tmp_path / "old")
    (other / "program0").rename(package / "program0")
    assert "program0/program.json: damaged" in refused(package)


@pytest.mark.parametrize("wanted", [np.zeros(3), np.zeros(()), np.zeros((0, 8, 6, 6)), np.array(["x"])])
def test_expected_outputs_of_another_shape(package, monkeypatch, capsys, wanted):
    monkeypatch.setattr(commands, "open_backend", lambda url: FunctionalBackend(CONFIG))
    arrays = dict(np.load(package / "sample.npz"))
    name = next(name for name in arrays if name.startswith("expected/"))
    np.savez(package / "sample.npz", **{**arrays, name: wanted})
    assert commands.main(["run", str(package)]) == 1
    assert "what is expected of" in capsys.readouterr().err
