"""What may lie where a command is told to read or write: devices, FIFOs, links, folders, odd names."""

import os
import socket
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np

from tests.gen.cli.file_lines import LINES, NAMES

__all__ = ["Right", "place"]

Rng = np.random.Generator
_DIGITS = Path(__file__).parents[2] / "examples" / "digits"
_SAMPLES = 2

#: Ending -> content of a right file. Those of other endings are read with what takes long.
Right = Mapping[str, bytes]

#: Names of files that are right.
_NAMES = ["a b", "-x", "--json", "é\u202e", "a\nb", "\x1b[2J", "x" * 200, "\udcff", "a;b", "$HOME", "~", "[red]",
          "a%sb{0}", "..x", "C:\\x", "'", '"', "*", "\u2028", "#", "=", "@x", "%", "x.npz.npz"]


def _socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))


def _sparse(path: Path) -> None:
    """More than there is memory, of which nothing is written."""
    with path.open("wb") as file:
        file.truncate(1 << 34)


def _linked(target: str) -> Callable[[Path], None]:
    return lambda path: path.symlink_to(target)


def _to_itself(path: Path) -> None:
    path.symlink_to(path.name)


def _to_a_pipe(path: Path) -> None:
    if not Path("pipe").exists():
        os.mkfifo("pipe")
    path.symlink_to("pipe")


def _with_something(path: Path) -> None:
    path.mkdir()
    (path / "inside").touch()


#: What is no file to be read, and no folder of files; `_sparse` is one, of zeros.
_INPUTS: list[Callable[[Path], None]] = [
    os.mkfifo, _socket, Path.mkdir, _with_something, Path.touch, _to_itself, _to_a_pipe, _sparse,
    *map(_linked, ("/dev/zero", "/dev/null", "/dev/full", "/dev/tty", "/dev/stdin", "/dev/ptmx", "/proc/self/mem",
                   "/proc/self/environ", "/proc/kmsg", "/nowhere", "/", "."))]
#: What an output may be; a FIFO waits for its reader, as anywhere.
_OUTPUTS: list[Callable[[Path], None]] = [
    _socket, Path.mkdir, _with_something, Path.touch, _to_itself,
    *map(_linked, ("/dev/null", "/dev/full", "elsewhere", "no/folder/yet", "victim/x", "/"))]


def _right_files() -> dict[str, str]:
    with np.load(_DIGITS / "digits_test.npz") as arrays:
        np.savez("good.npz", **{name: array[:_SAMPLES] for name, array in arrays.items()})
    return {"MODEL": str(_DIGITS / "digits_int8.onnx"), "FLOAT": str(_DIGITS / "digits_float.onnx"),
            "SAMPLES": "good.npz"}


def place(rng: Rng, right: Right) -> tuple[list[str], str]:
    """(a command line with something in the place of a file, the output that it names).

    It may be the right file after all, by an odd name.
    """
    known = _right_files()
    words = LINES[int(rng.integers(len(LINES)))].split()
    output = words[words.index("-o") + 1] if "-o" in words else ""
    if output and rng.integers(3) == 0:
        words[words.index("-o") + 1] = output = _odd_output(rng, output)
        words = [_right(word, right) for word in words]
    else:
        words = [_odd_input(rng, word, right) for word in words]
    words = [known.get(word, word) for word in words]
    if words[0] == "explore":
        words += ["--jobs", "1", "--no-cache", "--method", "random", "--evaluations", "1"]
    return words, output


def _right(word: str, right: Right, name: str = "special") -> str:
    """A right file, where there is one for the word."""
    if word.startswith("FILE"):
        ending = word.removeprefix("FILE")
        Path(name + ending).write_bytes(right.get(ending, b"{}"))
        return name + ending
    return word


def _odd_input(rng: Rng, word: str, right: Right) -> str:
    make = _INPUTS[int(rng.integers(len(_INPUTS)))]
    if word.startswith("FILE"):
        match int(rng.integers(8)):
            case 0:
                return word.replace("FILE", "x" * 300)
            case 1:
                Path("special").touch()
                return f"special/{word.removeprefix('FILE')}"
            case 2 | 3:
                return _right(word, right, _NAMES[int(rng.integers(len(_NAMES)))])
            case 4:
                path = Path(_right(word, right))
                path.write_bytes(path.read_bytes()[:int(rng.integers(100))])
                return str(path)
        make(Path(word.replace("FILE", "special")))
        return word.replace("FILE", "special")
    if word.endswith("FOLDER"):
        if rng.integers(4):
            Path("special").mkdir()
            for name in NAMES:
                make(Path("special") / name)
        else:
            make(Path("special"))
        return word.replace("FOLDER", "special")
    return word


def _odd_output(rng: Rng, word: str) -> str:
    match int(rng.integers(6)):
        case 0:
            return f"{'x' * 300}{word}"
        case 1:
            Path("special").touch()
            return f"special/{word}"
        case 2:
            return f"{_NAMES[int(rng.integers(len(_NAMES)))]}{word}"
    _OUTPUTS[int(rng.integers(len(_OUTPUTS)))](Path(word))
    return word
