"""Every exception of the project has one base, by which the command line knows what is for the user."""

import importlib
import pkgutil

import boards
import cores
import gen
import npudriver
import sim
from cores.errors import ArgumentError, CodedError, NpugenError
from gen.cli.errors import BAD_ARGUMENTS, FAILED, one_line, status_of
from npudriver import DriverError

PACKAGES = (boards, cores, gen, npudriver, sim)

#: One that gets out is a mistake of ours, and said to be one: the first is nothing else, the others are translated by
#: whoever knows the node or the file.
INTERNAL = {"StageError", "ArchiveError", "ArrayError", "DocumentError", "EntryError", "NodeError",
            "PictureError", "WindowError"}

NEED_TORCH = ("gen.train.call", "gen.train.fit", "gen.train.moving", "gen.train.network", "gen.train.operators")


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
        "ArgumentError", "BoardError", "ConfigError", "ConflictError", "TargetError", "UsageError",
        "ZooError"}


def test_what_the_user_sees():
    assert (one_line(NpugenError("a line")), status_of(NpugenError("a line"))) == ("a line", FAILED)
    assert (one_line(ArgumentError("a line")), status_of(ArgumentError("a line"))) == ("a line", BAD_ARGUMENTS)
    assert one_line(ValueError("a line")).startswith("internal error (ValueError: a line)")
