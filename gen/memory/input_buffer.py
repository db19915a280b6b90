"""Which feature maps stay in the input buffer, where, and what room they leave: all of it is decided here."""

from collections.abc import Mapping

from gen.memory.placement import Kept
from gen.memory.region import Lifetime, first_fit

__all__ = ["InputBuffer"]


class InputBuffer:
    """The input buffer of ``depth`` entries in the steps of a program, and the tensors ``kept`` there.

    These have its end, none over another of the same time, the largest last. What is loaded has the entries in front of
    them. Whoever wants to keep a tensor asks whether the room that is left is enough for what runs meanwhile.
    """

    def __init__(self, depth: int, kept: Mapping[str, tuple[Kept, Lifetime]]) -> None:
        self._depth, self.kept = depth, dict(kept)
        order = sorted(kept, key=lambda name: -kept[name][0].entries)
        ends = first_fit({name: (kept[name][0].entries, kept[name][1]) for name in order})
        #: Below 0 of what has no room.
        self.places = {name: form.at(depth - ends[name] - form.entries) for name, (form, _) in kept.items()}

    def room(self, life: Lifetime, *beside: Kept) -> int:
        """Entries for what is loaded in the steps ``life``; below 0 where what is kept has no room. ``beside``: tensors
        that would be kept meanwhile, too.
        """
        if beside:
            more = {f" {number}": (form, life) for number, form in enumerate(beside)}
            return InputBuffer(self._depth, {**self.kept, **more}).room(life)
        return min((self.places[name].offset for name, (_, other) in self.kept.items() if other.meets(life)),
                   default=self._depth)
