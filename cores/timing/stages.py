"""Of second stages with multipliers of their own."""

__all__ = ["StagedRequantizerTiming"]


class StagedRequantizerTiming:
    """Of `StagedRequantizer`, cores/store/stages/staged_requantizer.py, beside what is a `Requantizer`'s."""

    #: Cycles from a residual that is multiplied to the first stage's result: its total is there then.
    FACTOR = 3
