"""Numbers of a report, with the ranges in which one is read."""

from typing import Annotated

from msgspec import Meta

__all__ = ["Column", "Count", "Cycle", "Decibels", "Digest", "Megahertz", "Positive", "Rate", "Share"]

#: What a page's script can count exactly.
Count = Annotated[int, Meta(ge=0, lt=1 << 53)]
Positive = Annotated[int, Meta(ge=1, lt=1 << 53)]
#: As a column has them.
Cycle = Annotated[int, Meta(ge=0, lt=1 << 31)]
Digest = Annotated[int, Meta(ge=0, lt=1 << 32)]
#: A layer without multiplications has 0, one of fewer than its dense form more than 1.
Share = Annotated[float, Meta(ge=0, le=1000)]
Rate = Annotated[float, Meta(gt=0, le=1e9)]
Megahertz = Annotated[float, Meta(gt=0, le=10_000)]
Decibels = Annotated[float, Meta(ge=-1000, le=1000)]
#: As `gen.report.columns.pack` writes it.
Column = Annotated[str, Meta(pattern=r"^([A-Za-z0-9+/]{4})*([A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$")]
