"""What the machine lacks for a model that it runs in parts: said before anything else of it."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from boards.board import Board
from cores.config import FEATURES, ConfigError, NpuConfig
from gen.cli.common import messages

if TYPE_CHECKING:
    from gen.partition.missing import Gain
    from gen.run.application import Application

__all__ = ["missing_units", "say_missing"]


def missing_units(application: "Application", config: NpuConfig, board: Board,
                  with_features: Callable[[Sequence[str]], NpuConfig]) -> list[dict[str, Any]]:
    """Of each unit that would leave the processor less of the model: ``features``; ``option``, to be given in place of
    --features; ``host_nodes`` and ``host_segments`` that would be left; ``cost``, resource -> how much more of it; and
    ``refused``, why this machine cannot have it, or None.

    ``with_features`` makes the machine of some features and the other options, or raises ConfigError.

    More than one unit is in an entry where they give more than each by itself.
    """
    if application.partition is None or application.cut_again is None:
        return []
    from gen.onnx.machine import Machine
    from gen.partition.missing import gains

    found = gains(application.partition, Machine.of(config), application.cut_again)
    return [_facts(gain, config, board, with_features) for gain in found]


def _facts(gain: "Gain", config: NpuConfig, board: Board, with_features: Callable[[Sequence[str]], NpuConfig]
           ) -> dict[str, Any]:
    wanted = [name for name in FEATURES if name in (*config.features, *gain.features)]
    try:
        cost, refused = _cost(config, with_features(wanted), board)
    except ConfigError as error:
        cost, refused = {}, str(error)
    return {"features": list(gain.features), "option": f"--features {','.join(wanted)}",
            "host_nodes": len(gain.cut.host), "host_segments": gain.cut.host_segments, "cost": cost, "refused": refused}


def _cost(config: NpuConfig, larger: NpuConfig, board: Board) -> tuple[dict[str, float], str | None]:
    """What the ``larger`` machine takes more, by the area model; and why the board has no room for it."""
    from gen.hw.area import area_of, growth

    fits = not area_of(config, board.family).too_much(board)
    excess = area_of(larger, board.family).too_much(board) if fits else []
    return ({name: count for name, count in growth(config, larger, board.family).items() if count >= 0.5},
            f"{board.name} is too small: {', '.join(excess)}" if excess else None)


def say_missing(application: "Application", missing: Sequence[dict[str, Any]], board: str) -> None:
    """A line of what the processor is left with, and one for each entry of `missing_units`."""
    now = application.partition
    if now is None or not missing:
        return
    names = [name for name in FEATURES if any(name in one["features"] for one in missing)]
    messages.print(f"the machine lacks what this model has use for ({', '.join(names)}): the processor is left with "
                   f"{_left(len(now.host), now.host_segments)}", soft_wrap=True)
    for one in missing:
        cost = ", ".join(f"{name} {count:,.0f}" for name, count in one["cost"].items())
        how = (f"this machine cannot have it: {one['refused']}" if one["refused"] else
               f"costs about {cost or 'nothing'} of {board}; {one['option']}")
        left = _left(one["host_nodes"], one["host_segments"])
        messages.print(f"  with {' and '.join(one['features'])}: {left}; {how}",
                       soft_wrap=True)


def _left(nodes: int, segments: int) -> str:
    if not nodes and not segments:
        return "nothing"
    return f"{nodes:,} node{'' if nodes == 1 else 's'} in {segments:,} segment{'' if segments == 1 else 's'}"
