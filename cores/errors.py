"""The base of the project's exceptions."""

from collections.abc import Mapping
from typing import Self

from npudriver.errors import CodedError

__all__ = ["ArgumentError", "CodedError", "NpugenError", "Reason"]


class NpugenError(CodedError):
    """Something that the user can mend; the message says what, and is printed as it stands."""


class ArgumentError(NpugenError, ValueError):
    """What the user asked for makes no sense, or cannot be had: the options are to blame, not a file."""


class Reason(str):
    """Why something is not done, in words, with the ``code`` and the ``fields`` of an error that would say so."""

    code: str
    fields: Mapping[str, object]

    def __new__(cls, text: object, *, code: str = "", **fields: object) -> Self:
        reason = super().__new__(cls, text)
        reason.code, reason.fields = code, fields
        return reason

    @classmethod
    def of(cls, error: CodedError) -> Self:
        return cls(error, code=error.code, **error.fields)
