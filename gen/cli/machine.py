"""The machine that a command works for: the options that describe it, and what they come to."""

import argparse
import dataclasses
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from boards.board import Board
from boards.presets import USUAL_MACS, default_macs
from boards.registry import BOARDS, get_board
from cores.config import (
    ALL_PRESET_MACS,
    COMPUTING_FEATURES,
    FEATURES,
    MODEL_PURPOSES,
    PRESET_MACS,
    PURPOSES,
    UNITS,
    ConfigError,
    NpuConfig,
    features_together,
)
from cores.errors import NpugenError
from gen.cli.calibration import Relay, chosen_calibration, say
from gen.cli.common import messages, status
from gen.cli.errors import UsageError
from gen.cli.missing import missing_units, say_missing
from gen.files.read import require_file
from gen.name import called

if TYPE_CHECKING:
    from gen.options import CompileOptions
    from gen.run.application import Application, HostOptions
    from gen.run.calibration import Calibration

__all__ = [
    "add_machine_options", "chosen_board", "chosen_config", "chosen_for", "compile_options", "described",
    "host_options", "machine_facts", "machine_given", "machine_words", "megahertz", "named_board", "open_given",
    "require_inputs", "require_single", "say_density", "say_not_chosen",
]

DEFAULT_BOARD = "zu3eg"

_LANES = ("oc_lanes", "ic_lanes", "nnz_lanes", "pixel_lanes")
#: Of --features.
_ALL, _AUTO = "all", "auto"
_NOT_IN_ALL = tuple(name for name in FEATURES if name not in COMPUTING_FEATURES)
#: Fields that --features alone sets: those that are either there or not.
_FLAGS = frozenset(name for unit in UNITS if unit.switch for name in unit.fields)
_BY_HAND = tuple(field.name for field in dataclasses.fields(NpuConfig) if field.name not in _FLAGS)


def add_machine_options(parser: argparse.ArgumentParser, *, boards: Collection[str] = tuple(BOARDS),
                        board: str = DEFAULT_BOARD, macs: int = USUAL_MACS, for_model: bool = False) -> None:
    """--board, --macs, --config, --features and an option for every other field of the configuration.

    ``boards``, ``board`` and ``macs`` are what the command takes, and what it makes of options that are not given;
    ``for_model``: whether it takes its machine from `chosen_for`.
    """
    usual = f"{_AUTO} where no option says what the machine is, else none" if for_model else "none"
    parser.set_defaults(usual_macs=macs)
    group = parser.add_argument_group("machine")
    group.add_argument("--board", metavar="NAME", help=f"{', '.join(boards)} (default {board})")
    presets = ", ".join(map(str, ALL_PRESET_MACS))
    others = "".join(f", with --for {purpose} {default_macs(purpose, macs)}" for purpose in PURPOSES
                     if default_macs(purpose, macs) != macs)
    group.add_argument("--macs", type=int, metavar="N",
                       help=f"multiply-accumulates a cycle: {presets} (default {macs}{others}); more than "
                            f"{PRESET_MACS[-1]} with --for dense, fewer than {PRESET_MACS[0]} with --for tiny")
    group.add_argument("--for", dest="purpose", metavar="|".join([*PURPOSES, "MODEL.onnx"]),
                       help="what --macs is for: networks whose weights were pruned, or dense ones, in fewer LUTs and "
                            "with little use of zeros; or small devices; or a model, for which it is chosen with the "
                            f"features that pay (default {PURPOSES[0]})")
    group.add_argument("--config", type=Path, metavar="JSON",
                       help="configuration as `build` writes it, instead of --macs")
    group.add_argument("--features", type=_features, metavar="LIST",
                       help=f"what the machine has beside the matrix engine: {', '.join(FEATURES)}, separated by "
                            f"commas; {_ALL} (but {', '.join(_NOT_IN_ALL)}: what a machine of these lanes can have of "
                            f"the others); {_AUTO} (what pays for the model); or none (default {usual})")
    by_hand = parser.add_argument_group("machine, by hand", "replace single parameters of the preset")
    for name in _BY_HAND:
        by_hand.add_argument(_option(name), type=int, metavar="N", dest=name,
                             help=argparse.SUPPRESS if name not in _LANES else None)
    others = ", ".join(_option(name) for name in _BY_HAND if name not in _LANES)
    by_hand.description = f"{by_hand.description}; also {others}"


def megahertz(text: str) -> float:
    """Of --clock. Raises ArgumentTypeError for a rate that no fabric has."""
    try:
        value = float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"must be a number of MHz, not {text}") from None
    if not 1 <= value <= 400:
        raise argparse.ArgumentTypeError(f"must be in 1..400 MHz, not {text}")
    return value


def _option(field: str) -> str:
    """--winograd says what the compiler makes of the unit."""
    return "--winograd-unit" if field == "winograd" else f"--{field.replace('_', '-')}"


def _features(text: str) -> tuple[str, ...]:
    """Names of `FEATURES`, ``(_ALL,)`` or ``(_AUTO,)``."""
    names = tuple(name.strip() for name in text.split(","))
    if names in (("none",), (_ALL,), (_AUTO,)):
        return () if names == ("none",) else names
    unknown = [name for name in names if name not in FEATURES]
    if {_ALL, _AUTO, "none"} & set(unknown):
        raise argparse.ArgumentTypeError(f"{_ALL}, {_AUTO} and none stand by themselves")
    if unknown:
        raise argparse.ArgumentTypeError(f"no feature {unknown[0]!r}; there are "
                                         f"{', '.join([*FEATURES, _ALL, _AUTO])}, or none")
    return names


def machine_given(arguments: argparse.Namespace) -> bool:
    """Whether any option asks for a certain configuration; --board alone does not."""
    return any(getattr(arguments, name) is not None for name in ("macs", "purpose", "config", "features", *_BY_HAND))


def chosen_board(arguments: argparse.Namespace) -> Board:
    """Raises BoardError for an unknown board."""
    return get_board(DEFAULT_BOARD if arguments.board is None else arguments.board)


def named_board(arguments: argparse.Namespace) -> str | None:
    """The board to compile for: the default's, unless a file describes the machine. Raises BoardError."""
    board = chosen_board(arguments)
    return None if arguments.board is None and arguments.config is not None else board.name


def chosen_config(arguments: argparse.Namespace, features: Sequence[str] | None = None) -> NpuConfig:
    """The configuration that the options describe, with these ``features`` instead of theirs if some are given.

    What they leave to be chosen for a model is settled in ``arguments`` first. Raises ConfigError, UsageError, and what
    `choose_machine` does.
    """
    _settle(arguments)
    features = arguments.features if features is None else features
    by_hand = {name: getattr(arguments, name) for name in _BY_HAND if getattr(arguments, name) is not None}
    lanes = {"--macs": arguments.macs, "--for": arguments.purpose}
    given = [option for option, value in lanes.items() if value is not None]
    if arguments.config is not None and given:
        raise UsageError(f"--config and {given[0]} exclude each other: the file says which lanes there are",
                         code="option-conflict")

    def machine(**overrides: int) -> NpuConfig:
        if arguments.config is not None:
            return dataclasses.replace(_load(arguments.config), **overrides)
        return chosen_board(arguments).config(_macs(arguments), _purpose(arguments), **overrides)

    if features is None:
        return machine(**by_hand)
    preset = machine(**{name: value for name, value in by_hand.items() if name in (*_LANES, "select_fanin")})

    def with_features(names: Sequence[str]) -> NpuConfig:
        return machine(**{**preset.feature_fields(names), **by_hand})

    if features == (_ALL,):
        # Those first that are there by hand: they are meant.
        return _with_all(with_features, sorted(
            COMPUTING_FEATURES, key=lambda name: by_hand.keys().isdisjoint(FEATURES[name])))
    try:
        return with_features(features)
    except ConfigError as error:
        way_out = _way_out(arguments, with_features, features) if features is arguments.features else ""
        raise ConfigError.of(error, f"{error}{way_out}") from None


def chosen_for(arguments: argparse.Namespace, path: Path, *, calibration: "Calibration | None" = None,
               samples: Path | None = None) -> argparse.Namespace:
    """The options of the machine for the model or program at ``path`` (docs/decisions/0023).

    If none says what the machine is, nor asks for what only some have, --features auto does. A program has its machine.
    Where none can be chosen for a model, the plain machine is taken, and `say_not_chosen` says why. ``calibration``: of
    the ``arguments``, None to make it; ``samples``: as for `open_given`.

    Raises OSError, UsageError, and of what was asked for what `choose_machine` does.
    """
    from gen.run.workload import is_program

    asked = machine_given(arguments) or arguments.winograd_mode in ("exact", "narrow") or arguments.stochastic
    if not asked and is_program(path):
        return arguments
    if asked and arguments.features != (_AUTO,):
        _settle(arguments, calibration)
        return arguments
    chosen = argparse.Namespace(**{**vars(arguments), "model": path, "features": (_AUTO,)})
    if asked:
        _settle(chosen, calibration, samples)
        return chosen
    if samples is not None:
        require_file(samples)
    try:
        _settle(chosen, calibration, samples)
    except NpugenError as error:
        chosen.features, chosen.not_chosen = arguments.features, str(error)
    return chosen


def say_not_chosen(arguments: argparse.Namespace) -> None:
    """Why `chosen_for` took the plain machine, if it had to: for a model that is good enough for the command."""
    if hasattr(arguments, "not_chosen"):
        board, macs = chosen_board(arguments).name, _macs(arguments)
        messages.print(f"no units are chosen for the model, with {macs} MACs on {board}: {arguments.not_chosen}; the "
                       "plain machine is taken, --macs, --features or --board say another", soft_wrap=True)


def chosen_by_model(arguments: argparse.Namespace) -> str:
    """`gen.run.application.Application.chosen`, of settled ``arguments``."""
    return getattr(arguments, "by_model", "")


def _settle(arguments: argparse.Namespace, calibration: "Calibration | None" = None, samples: Path | None = None
            ) -> None:
    """Have what --for MODEL and --features auto leave open chosen, and put it in their place."""
    named = arguments.purpose in (None, *PURPOSES)
    if named and arguments.features != (_AUTO,):
        return
    if arguments.config is not None:
        option = f"--features {_AUTO}" if named else "--for"
        raise UsageError(f"--config and {option} exclude each other: the file says what the machine is",
                         code="option-conflict")
    if not named and arguments.features not in (None, (_AUTO,)):
        raise UsageError("--for MODEL chooses the features; leave out --features", code="option-conflict")
    model = getattr(arguments, "model", None) if named else Path(arguments.purpose)
    if model is None:
        raise UsageError(f"--features {_AUTO} wants a model: --for MODEL.onnx", code="option-conflict")
    if not named and not model.suffix:
        raise UsageError(f"--for {model}: must be {', '.join(PURPOSES)}, or a model", code="unknown-name")
    from gen.cli.machine_choice import choose_machine

    by_hand = {name: getattr(arguments, name) for name in _BY_HAND if getattr(arguments, name) is not None}
    given = {"macs": _macs(arguments), **by_hand}
    if getattr(arguments, "density", None) is not None:
        given["density"] = arguments.density
    purposes = [_purpose(arguments)] if named else MODEL_PURPOSES
    arguments.purpose, arguments.features = choose_machine(
        arguments, model, chosen_board(arguments), purposes, given, calibration, samples)
    arguments.by_model = "units" if named else "machine"


def _purpose(arguments: argparse.Namespace) -> str:
    return PURPOSES[0] if arguments.purpose is None else str(arguments.purpose)


def _macs(arguments: argparse.Namespace, purpose: str | None = None) -> int:
    """As given, else the command's default for ``purpose``, or for that of the ``arguments``."""
    if arguments.macs is not None:
        return int(arguments.macs)
    return default_macs(purpose or _purpose(arguments), arguments.usual_macs)


def described(config: NpuConfig, board: str | None, arguments: argparse.Namespace | None = None) -> str:
    """Which machine a result is of, in a line; with the command that builds it, if those ``arguments`` were chosen for
    a model.
    """
    built = machine_facts(config, board, arguments)["build"]
    return f"machine: {machine_words(config, board)}{built and '; built by: ' + built}"


def machine_words(config: NpuConfig, board: str | None) -> str:
    """Board, size and units, for a sentence."""
    words = [*([board] if board else []), f"{config.macs} MACs", f"features {', '.join(config.features) or 'none'}"]
    return ", ".join(words)


def machine_facts(config: NpuConfig, board: str | None, arguments: argparse.Namespace | None = None) -> dict[str, Any]:
    """`described` for scripts; ``build``: the command, or ""."""
    build = _built_by(arguments) if arguments is not None and chosen_by_model(arguments) else ""
    return {"board": board, "macs": config.macs, "features": list(config.features), "build": build}


def _built_by(arguments: argparse.Namespace) -> str:
    """The command that builds the machine of settled ``arguments``."""
    options = {"--board": chosen_board(arguments).name,
               "--macs": _macs(arguments),
               "--for": None if _purpose(arguments) == PURPOSES[0] else arguments.purpose,
               "--features": ",".join(arguments.features) or "none",
               **{_option(name): getattr(arguments, name) for name in _BY_HAND}}
    return " ".join([called(), "build", *(f"{name} {value}" for name, value in options.items() if value is not None)])


def _load(path: Path) -> NpuConfig:
    try:
        require_file(path)
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}", code="unreadable-file") from None
    return NpuConfig.load(path)


def _with_all(with_features: Callable[[Sequence[str]], NpuConfig], names: Sequence[str]) -> NpuConfig:
    """Every feature that can be had; what is left out is said."""
    kept, left_out = features_together(with_features, names)
    if left_out:
        listed = "; ".join(f"without {', '.join(names)} ({reason})" for reason, names in left_out.items())
        messages.print(f"--features {_ALL}: {listed}", soft_wrap=True)
    return with_features(kept)


def _can_be_built(make: Callable[[Sequence[str]], NpuConfig], features: Sequence[str]) -> bool:
    try:
        make(features)
    except ConfigError:
        return False
    return True


def _preset(board: Board, macs: int, purpose: str) -> Callable[[Sequence[str]], NpuConfig]:
    def config(features: Sequence[str]) -> NpuConfig:
        return board.config(macs, purpose, **board.config(macs, purpose).feature_fields(features))

    return config


def _way_out(arguments: argparse.Namespace, with_features: Callable[[Sequence[str]], NpuConfig],
             features: Sequence[str]) -> str:
    """The first feature that the machine cannot have, and what to do about it; "" if no feature is to blame."""
    board = chosen_board(arguments)
    if not features or not _can_be_built(with_features, ()):
        return ""
    wrong = next(name for end, name in enumerate(features, 1) if not _can_be_built(with_features, features[:end]))
    ways = []
    if all(getattr(arguments, name) is None for name in _LANES):
        able = [str(other) for other in ALL_PRESET_MACS
                if _can_be_built(_preset(board, other, _purpose(arguments)), features)]
        ways += [f"--macs {', '.join(able)}"] if able else []
        ways += [f"--for {other}" for other in PURPOSES if other != _purpose(arguments)
                 and _can_be_built(_preset(board, _macs(arguments, other), other), features)]
    presets = f", or take a preset that has it ({'; '.join(ways)})" if ways else ""
    return f"; leave {wrong} out of --features{presets}"


def compile_options(arguments: argparse.Namespace, *, keep_all: bool) -> "CompileOptions":
    """What `add_compiler_options` has given."""
    from gen.options import CompileOptions

    return CompileOptions(density=arguments.density, depthwise=arguments.depthwise, fusion=arguments.fusion,
                          gather=arguments.gather, winograd=arguments.winograd_mode, stochastic=arguments.stochastic,
                          keep_all=keep_all, batch=getattr(arguments, "batch", 1),
                          shapes=dict(arguments.shape))


def host_options(arguments: argparse.Namespace) -> "HostOptions":
    """What --host and --reconstruct have given."""
    from gen.run.application import HostOptions

    return HostOptions(allowed=arguments.host != "off", rebuild=arguments.reconstruct != "off")


def require_single(application: "Application", path: Path) -> None:
    """Raises UsageError for a program of several samples."""
    if application.batch > 1:
        raise UsageError(f"{path}: a program for a batch of {application.batch} samples; compile the model without "
                         "--batch", code="option-conflict")


def require_inputs(arguments: argparse.Namespace, inputs: Collection[str]) -> None:
    """Raises UsageError for a --shape of something that is none of the model's ``inputs``, nor one of its file that has
    become a constant (`gen.onnx.passes.bind_shapes`).
    """
    for name, shape in arguments.shape:
        if name not in inputs and not (len(shape) == 1 and name in _file_inputs(arguments)):
            raise UsageError(f"--shape {name}: the inputs of the model are {', '.join(inputs)}")


def _file_inputs(arguments: argparse.Namespace) -> set[str]:
    """Those of the ONNX files that a command is given."""
    import onnx

    paths = getattr(arguments, "models", None) or [arguments.model]
    return {value.name for path in paths if path.suffix == ".onnx"
            for value in onnx.load(path, load_external_data=False).graph.input}


def say_density(asked: float | None, config: NpuConfig) -> float | None:
    """The density that the machine has in place of the one asked for; a line on stderr if they differ."""
    if asked is None:
        return None
    from gen.passes.prune import rounded_density

    used = rounded_density(asked, config)
    if used != asked:
        messages.print(f"--density {asked:g}: {used:g} is the nearest that this machine has, in steps of "
                       f"{1 / config.groups_dense:g}", soft_wrap=True)
    return used


def open_given(arguments: argparse.Namespace, path: Path, *, samples: Path | None = None,
               calibration: "Calibration | None" = None, again: bool = False) -> "Application":
    """The model or program at ``path``, for the machine of the options; a program brings its own if there are none.

    A model's tensors are all kept, so that a run compares them. What its inputs leave open, and --shape does not say,
    is as in the arrays of ``samples``. ``calibration``: of the ``arguments``, None to make it; ``again``: what there is
    to say of model and machine has been said.
    """
    from gen.onnx.read import OpenShapeError
    from gen.run.application import open_application
    from gen.run.inputs import array_shapes
    from gen.run.workload import is_program

    compiled = is_program(path)
    own = compiled and not machine_given(arguments)
    told = Relay()
    calibration = calibration or chosen_calibration(arguments, told)
    arguments = chosen_for(arguments, path, calibration=calibration, samples=samples)
    config = chosen_config(arguments)
    with status(f"reading {path.name}") as remark:
        told.to = remark
        if not (compiled or again):
            say_density(arguments.density, config)

        def opened(options: "CompileOptions") -> "Application":
            return open_application(
                path, None if own else config, options, calibration=calibration, host=host_options(arguments),
                board=arguments.board if compiled else named_board(arguments), progress=remark)

        options = compile_options(arguments, keep_all=not compiled)
        try:
            application = opened(options)
        except OpenShapeError:
            if samples is None or options.shapes:
                raise
            application = opened(dataclasses.replace(options, shapes=array_shapes(samples)))
        require_inputs(arguments, application.inputs)
        missing = [] if again else missing_units(application, config, chosen_board(arguments),
                                                 lambda features: chosen_config(arguments, features))
    if again:
        return application
    if chosen_by_model(arguments):
        messages.print(f"the machine is built by: {_built_by(arguments)}", soft_wrap=True)
    say_not_chosen(arguments)
    say_missing(application, missing, chosen_board(arguments).name)
    say(application.remarks)
    return dataclasses.replace(application, chosen=chosen_by_model(arguments))
