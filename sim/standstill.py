"""A machine that stands still, in words: which part waits for what. Both simulators speak like this."""

from collections.abc import Mapping

__all__ = ["nothing_moves", "tokens_of"]


def tokens_of(source: str, count: int, given: int) -> str:
    """What a queue lacks that takes ``count`` tokens of the queue ``source`` where ``given`` are there."""
    return f"{count} token(s) of the {source} queue, which gave {given}"


def nothing_moves(reasons: Mapping[str, str], held: Mapping[str, int | None]) -> str:
    """``reasons``: part -> what it waits for; ``held``: the instruction that it has in hand."""
    texts = [f"{name}{'' if held.get(name) is None else f' {held[name]}'} waits for {reason}"
             for name, reason in sorted(reasons.items())]
    return "nothing can move: " + "; ".join(texts)
