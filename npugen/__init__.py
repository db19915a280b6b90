"""npugen from Python: models quantised, compiled, run, timed and drawn, and machines built, in a call each.

    import npugen

    machine = npugen.machine("zu3eg", macs=64, features="all")
    model = npugen.compile("model.onnx", machine, calibrate="samples.npz")
    print(model)
    print(npugen.run(model, "samples.npz", target="rtl").accuracy)
    npugen.report(model, "report.html")
    npugen.build(machine, "build/zu3eg")

``npugen.examples`` is a folder with a network for handwritten digits, float and int8, and samples.

What is here stays as it is from one version to the next of the same first number; what lies below, in the modules
``boards``, ``cores``, ``gen``, ``npudriver`` and ``sim``, may change. Errors that a user can correct are one line, with
a ``code`` (docs/errors.md). Nothing here prints.
"""

import importlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from npugen.machines import Machine, build, machine, machine_for
    from npugen.measures import Exploration, Profile, explore, profile, report, run
    from npugen.models import Model, compile, deploy, judge, prune, quantize, train

    __version__: str
    examples: Path

__all__ = [
    "Exploration", "Machine", "Model", "Profile", "__version__", "build", "compile", "deploy", "examples", "explore",
    "judge", "machine", "machine_for", "profile", "prune", "quantize", "report", "run", "train",
]

#: What is imported when it is first asked for, and from where: the command line wants none of it.
_FROM = {
    "npugen.machines": ("Machine", "build", "machine", "machine_for"),
    "npugen.measures": ("Exploration", "Profile", "explore", "profile", "report", "run"),
    "npugen.models": ("Model", "compile", "deploy", "judge", "prune", "quantize", "train"),
}


def __getattr__(name: str) -> Any:
    """Raises ImportError where another module hides one that is needed (`npugen.own`)."""
    if name == "__version__":
        from importlib import metadata

        try:
            return metadata.version("npugen")
        except metadata.PackageNotFoundError:
            return "0"      # a checkout that is not installed
    if name == "examples":      # a folder: digits_float.onnx, digits_int8.onnx, and digits_test.npz with their samples
        return Path(__file__).resolve().parents[1] / "gen" / "digits"
    for module, names in _FROM.items():
        if name in names:
            from npugen.own import require_own

            require_own()
            return getattr(importlib.import_module(module), name)
    raise AttributeError(f"module npugen has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
