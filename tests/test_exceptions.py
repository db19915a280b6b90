"""Every exception of the project has one base, by which the command line knows what is for the user."""

import ast
import importlib
import pkgutil
import re
from collections.abc import Iterator

import pytest

import boards
import cores
import gen
import npudriver
import sim
from cores.arch.error_codes import ERROR_CODES, ErrorCode
from cores.errors import ArgumentError, CodedError, NpugenError
from gen.cli.errors import BAD_ARGUMENTS, FAILED, one_line, status_of
from npudriver import DriverError
from npudriver.errors import fault_code
from tests import ROOT
from tests.lint.imports import modules

PACKAGES = (boards, cores, gen, npudriver, sim)

#: One that gets out is a mistake of ours, and said to be one: the first is nothing else, the others are translated by
#: whoever knows the node or the file.
INTERNAL = {"StageError", "ArchiveError", "ArrayError", "DocumentError", "EntryError", "NodeError",
            "PictureError", "WindowError", "CheckError", "LaterError", "UnsupportedError"}

NEED_TORCH = ("gen.detection.losses.outputs", "gen.detection.losses.ssd", "gen.detection.losses.yolo",
              "gen.train.binary", "gen.train.call", "gen.train.classes", "gen.train.detector", "gen.train.fit",
              "gen.train.moving", "gen.train.network", "gen.train.operators", "gen.train.scales",
              "gen.train.session_folder", "gen.train.streams", "gen.train.task")


def exceptions() -> set[type[Exception]]:
    """All that the modules of the packages define, but for what sets the process up as a command, or needs PyTorch.

    That is an extra, and modules that need it define none.
    """
    names = [found.name for package in PACKAGES
             for found in pkgutil.walk_packages(package.__path__, f"{package.__name__}.")]
    modules = [importlib.import_module(name) for name in names
               if not name.endswith("__main__") and name not in NEED_TORCH]
    return {value for module in modules for value in vars(module).values()
            if isinstance(value, type) and issubclass(value, Exception) and value.__module__ == module.__name__}


def test_one_base():
    found = exceptions()
    assert len(found) > len(INTERNAL)
    others = {kind for kind in found if not issubclass(kind, NpugenError | DriverError)}
    assert {kind.__name__ for kind in others - {CodedError}} == INTERNAL


def test_what_the_options_are_to_blame_for():
    assert {kind.__name__ for kind in exceptions() if issubclass(kind, ArgumentError)} == {
        "ArgumentError", "BoardError", "ConfigError", "ConflictError", "ProcessorError", "StateError", "TargetError",
        "UsageError", "ZooError"}


def test_what_the_user_sees():
    assert (one_line(NpugenError("a line")), status_of(NpugenError("a line"))) == ("a line", FAILED)
    assert (one_line(ArgumentError("a line")), status_of(ArgumentError("a line"))) == ("a line", BAD_ARGUMENTS)
    assert one_line(ValueError("a line")).startswith("internal error (ValueError: a line)")


def given_codes() -> Iterator[str]:
    """The codes that exceptions and reasons are made with in the sources; "" for one that has none."""
    own = {kind.__name__: kind.code for kind in exceptions() if issubclass(kind, CodedError)} | {"Reason": ""}
    of_another = {"FaultError", "MachineError", "UnfitError", "UnfitNodesError"}      # in their constructors
    yield from (fault_code(cause.name) for cause in ERROR_CODES if cause is not ErrorCode.NONE)
    for path in modules().values():
        for call in (node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call)):
            made, _, of = ast.unparse(call.func).partition(".")
            if made in own.keys() - of_another and of in ("", "of"):
                words = {word.arg: word.value for word in call.keywords}
                code = words.get("code", ast.Constant(own[made]))
                if isinstance(code, ast.Constant) and (code.value or not of):
                    yield str(code.value)


@pytest.mark.slow
def test_every_code_is_listed_once():
    listed = re.findall(r"^\| `([a-z-]+)` \|", (ROOT / "docs" / "errors.md").read_text(), re.M)
    assert len(listed) == len(set(listed)) and set(listed) == set(given_codes())
