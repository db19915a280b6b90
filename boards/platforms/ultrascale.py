"""Amaranth platforms of boards that amaranth-boards has not.

In its style, but without resources: clocks, resets and memory come from the processor in the device, so the NPU has no
pins of its own.
"""

from amaranth.vendor import XilinxPlatform

__all__ = ["KV260Platform", "Ultra96V2Platform", "ZCU102Platform"]


class _ZynqUltraScalePlatform(XilinxPlatform):
    resources: list = []    # type: ignore[assignment]
    connectors: list = []   # type: ignore[assignment]


class Ultra96V2Platform(_ZynqUltraScalePlatform):
    device = "xczu3eg"
    package = "sbva484"
    speed = "1-i"


class ZCU102Platform(_ZynqUltraScalePlatform):
    device = "xczu9eg"
    package = "ffvb1156"
    speed = "2-e"


class KV260Platform(_ZynqUltraScalePlatform):
    device = "xck26"
    package = "sfvc784"
    speed = "2LV-c"
