"""What tests expect of errors: which mistake it is and of what, rather than the words for it."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TypeVar

import pytest

from cores.errors import CodedError, Reason

__all__ = ["is_about", "raises"]

Raised = TypeVar("Raised", bound=CodedError)


@contextmanager
def raises(kind: type[Raised], code: str, match: str | None = None,
           **fields: object) -> Iterator[pytest.ExceptionInfo[Raised]]:
    """As ``pytest.raises``, of an error with this ``code`` and, among others, these ``fields``."""
    with pytest.raises(kind, match=match) as caught:
        yield caught
    is_about(caught.value, code, **fields)


def is_about(said: CodedError | Reason, code: str, **fields: object) -> None:
    """Asserts that an error, or a reason, has this ``code`` and, among others, these ``fields``."""
    found = {name: said.fields.get(name) for name in fields}
    assert (said.code, found) == (code, fields), f"{said} [{said.code}] {said.fields}"
