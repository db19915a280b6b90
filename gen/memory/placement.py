"""Where feature maps lie in the data region."""

from dataclasses import dataclass
from typing import Annotated

from msgspec import Meta

from npudriver import layout

__all__ = ["ALIGNMENT", "Placement", "aligned"]

#: Tensors begin at multiples of this many bytes of the data region, so that bursts seldom cross a 4 KiB line.
ALIGNMENT = 4096

#: In a file, numbers have ranges.
_Dimension = Annotated[int, Meta(ge=1, le=1 << 28)]


@dataclass(frozen=True)
class Placement:
    """Where a feature map lies: (ceil(C / tn), H, W, tn) int8 from beat ``offset`` of the data region.

    With ``signs`` a map of bits: (ceil(C / tn), H, ceil(W / 8)) beats of eight pixels each. With ``interleaved``
    (H, W, C) int8, every row beginning a beat; the bytes after a row mean nothing. With ``whole`` it lies in the place
    of that tensor: its blocks are some of that one's.
    """

    offset: Annotated[int, Meta(ge=0, le=1 << 53)]
    shape: tuple[_Dimension, _Dimension, _Dimension]
    signs: bool = False
    interleaved: bool = False
    whole: str | None = None

    @property
    def row_beats(self) -> int:
        """Beats of a row of a block."""
        return layout.row_beats(self.shape[2], self.signs)

    def beats(self, tn: int) -> int:
        return layout.beats(self.shape, tn, signs=self.signs, interleaved=self.interleaved)

    def overlaps(self, other: "Placement", tn: int) -> bool:
        return self.offset < other.offset + other.beats(tn) and other.offset < self.offset + self.beats(tn)

    def lies_in(self, whole: "Placement", tn: int) -> bool:
        """Whether its blocks are some of those of ``whole``, neither being of another form."""
        channels, *size = self.shape
        skipped, rest = divmod(self.offset - whole.offset, size[0] * size[1])
        return (whole.whole is None and size == list(whole.shape[1:]) and rest == 0 and skipped >= 0
                and skipped * tn + channels <= whole.shape[0]
                and not (self.signs or self.interleaved or whole.signs or whole.interleaved))


def aligned(beats: int, tn: int) -> int:
    """``beats`` of ``tn`` bytes, and those left free after them."""
    step = ALIGNMENT // tn
    return -(-beats // step) * step
