"""Packages as `deploy` makes them, and what happens to them: damage that digests find, and changes that have their own.
"""

import contextlib
import io
import os
import shutil
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from gen.cli import main
from tests.fuzz import mutate
from tests.gen.qdq import Builder
from tests.npu_files import reseal

__all__ = ["base_packages", "damage"]

Rng = np.random.Generator
Files = dict[str, bytes]

#: Files that nothing has a digest of.
_OPEN = "sample.npz"
#: The driver's copy, what is for other tools, and programs of the doctor's, which have digests of their own.
_LEFT_OUT = ("npudriver/", "c/", "run.py", "README.txt", "bringup.zip")


def _partly(rng: Rng) -> bytes:
    """A convolution, and functions for the processor after it."""
    b = Builder(rng)
    real = b.requantize(b.node("Conv", b.requantize(b.input(1, 4, 6, 6, number=np.float32), zero_point=0),
                               b.weights(4, 4, 3, 3), pads=[1, 1, 1, 1]), zero_point=0)
    b.output(b.node("Sigmoid", b.node("Erf", real)), np.float32)
    return b.build().SerializeToString()


def base_packages(folder: Path, models: list[bytes]) -> list[Files]:
    """Of some models, and of one of which the processor has a part; all for 16 MACs."""
    packages = []
    for number, model in enumerate([*models, _partly(np.random.default_rng(0))]):
        path, target = folder / "base.onnx", folder / f"package{number}"
        path.write_bytes(model)
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            status = main(["deploy", str(path), "--macs", "16", "--limit", "1", "-o", str(target)])
        assert status == 0, "a base is no package"
        files = {str(found.relative_to(target)): found.read_bytes() for found in target.rglob("*") if found.is_file()}
        packages.append({name: content for name, content in files.items() if not name.startswith(_LEFT_OUT)})
        shutil.rmtree(target)
    return packages


def _replaced(make: Callable[[Path], Any]) -> Callable[[Path], None]:
    def change(path: Path) -> None:
        path.unlink()
        make(path)
    return change


def _away(path: Path) -> None:
    """A link to the same content, out of the package."""
    outside = Path("away").absolute()
    path.rename(outside)
    path.symlink_to(outside)


def _sparse(path: Path) -> None:
    """More than there is memory, of which nothing is written."""
    with path.open("r+b") as file:
        file.truncate(1 << 34)


#: What becomes of a file, beside its bytes.
_PLACES: list[Callable[[Path], Any]] = [
    Path.unlink, _replaced(Path.mkdir), _replaced(os.mkfifo), _replaced(lambda path: path.symlink_to("/dev/zero")),
    _replaced(lambda path: path.symlink_to(path.name)), _replaced(lambda path: path.symlink_to("/nowhere")), _away,
    _sparse]
_TEXTS = [b"", b"\xff\xfe\0{", b"{}", b"[]", b"null", b"1e999", b"NaN", b"[" * 100_000, b'{"a":' * 5_000,
          b"9" * 4301, b'{"version": ' + b"9" * 4301 + b"}", b'"\\ud800"', b'{"format": "\\ud800\\u001b[2J"}',
          b"\0" * 1000, b"{" + b" " * (1 << 25) + b"}"]


def damage(rng: Rng, files: Files, folder: Path) -> bool:
    """Write a package with something wrong into ``folder``. Returns whether it is one that must be refused."""
    files = dict(files)
    if rng.integers(2):
        for _ in range(int(rng.choice([1, 1, 2]))):
            _change(rng, files)
        _write(files, folder)
        _seal(folder)
        return False
    _write(files, folder)
    name = str(rng.choice(sorted(name for name in files if name != _OPEN)))
    path, kind = folder / name, int(rng.integers(4))
    if kind == 0:
        _PLACES[int(rng.integers(len(_PLACES)))](path)
    elif kind == 1 and name.endswith(".json"):
        path.write_bytes(_TEXTS[int(rng.integers(len(_TEXTS)))])
    elif kind == 1:
        path.write_bytes(files[name][:int(rng.integers(len(files[name])))])
    else:
        path.write_bytes(mutate.mutate_bytes(rng, files[name]))
    return not path.is_file() or path.is_symlink() or path.stat().st_size != len(files[name]) or (
        path.read_bytes() != files[name])


def _change(rng: Rng, files: Files) -> None:
    """Something of a file, of which the digest will be right."""
    name = str(rng.choice(sorted(files)))
    if name.endswith(".json") or rng.integers(2):
        name = name if name.endswith(".json") else str(rng.choice(sorted(n for n in files if n.endswith(".json"))))
        files[name] = mutate.mutate_json(rng, files[name], without=("files", "sha256"))
    elif name.endswith(".npz"):
        with contextlib.suppress(zipfile.BadZipFile):   # one that was changed before
            files[name] = mutate.mutate_npz(rng, files[name])
    else:
        files[name] = mutate.mutate_bytes(rng, files[name])


def _write(files: Files, folder: Path) -> None:
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)


def _seal(folder: Path) -> None:
    """Digests anew, of files of programs first: the model has those of their headers."""
    for path in [*sorted(folder.glob("*/program.json")), folder / "model.json"]:
        reseal(path)
