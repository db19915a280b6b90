"""Names from files, which may be anything, on their way to people."""

__all__ = ["printable"]


def printable(text: str, *, keep: str = "") -> str:
    """``text`` with a question mark for every character that moves the cursor, hides, or cannot be shown.

    Those of ``keep`` stay.
    """
    return "".join(character if character.isprintable() or character in keep else "?" for character in text)
