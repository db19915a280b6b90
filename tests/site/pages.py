"""Which pages the site has beside those of docs/, and how links lead from one to another.

A page of the repository links to others by their places there. In the site the documents of the root lie beside those
of docs/, so each link is led anew; one to a file that the site does not have loses its target.
"""

import posixpath
import re
from collections.abc import Callable
from pathlib import Path

from tests import ROOT
from tests.site.commands import commands_page
from tests.site.machine import instructions_page, registers_page
from tests.site.notebooks import notebook_page, notebook_pages
from tests.site.python import python_pages

__all__ = ["BESIDE", "GENERATED", "SCRIPT", "beside_text", "elsewhere", "led_anew", "navigation"]

#: Place in the site -> document of the repository that is outside of docs/, or no Markdown.
BESIDE = {
    "overview.md": "README.md",
    "changes.md": "CHANGELOG.md",
    "contributing.md": "CONTRIBUTING.md",
    "security.md": "SECURITY.md",
    "licence.md": "LICENSE",
    "notices.md": "NOTICE",
    **notebook_pages(),
}

#: Place in the site -> what makes the page.
GENERATED: dict[str, Callable[[], str]] = {
    "reference/commands.md": commands_page,
    "reference/instructions.md": instructions_page,
    "reference/registers.md": registers_page,
    **python_pages(),
}

#: What the search of pages from the disk needs.
SCRIPT = Path(__file__).parent / "iframe-worker.js"

#: Where a page has a browser fetch something from.
_FETCHED = re.compile(r'<(?:script|img|iframe|link[^>]* rel="?(?:stylesheet|preload|icon)"?)\b[^>]*?'
                      r' (?:src|href)="?((?:https?:)?//[^">\s]+)')
_LINK = re.compile(r"(?<!!)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^)\s]+)\)")
_FENCE = re.compile(r"^(```.*?^```)", re.M | re.S)


def beside_text(place: str) -> str:
    """A page of `BESIDE`."""
    if BESIDE[place].endswith(".ipynb"):
        return notebook_page(ROOT / BESIDE[place])
    text = (ROOT / BESIDE[place]).read_text()
    title = Path(place).stem.capitalize()
    return text if BESIDE[place].endswith(".md") else f"# {title}\n\n```\n{text}\n```\n"


def navigation() -> list[str]:
    """The pages that mkdocs.yml has in its menus, by their places."""
    menus = (ROOT / "mkdocs.yml").read_text().partition("\nnav:\n")[2]
    return re.findall(r"^ +- (?:.*: )?(\S+\.md)$", menus, re.M)


def elsewhere(page: str) -> list[str]:
    """The addresses from which a page of the site, as HTML, fetches what it needs."""
    return _FETCHED.findall(page)


def led_anew(markdown: str, page: str, has: Callable[[str], bool]) -> str:
    """A page's text with its links as the site has them.

    Args:
        markdown: as it is in the repository.
        page: its place in the site.
        has: whether the site has a file, by its place there.
    """
    here = BESIDE.get(page, f"docs/{page}")
    places = {name: place for place, name in BESIDE.items()}

    def lead(match: re.Match[str]) -> str:
        text, target = match.groups()
        if "://" in target or target.startswith(("#", "mailto:")):
            return match[0]
        path, hash_, anchor = target.partition("#")
        name = posixpath.normpath(posixpath.join(posixpath.dirname(here), path))
        place = places.get(name, name.removeprefix("docs/"))
        if name in places or (name.startswith("docs/") and has(place)):
            return f"[{text}]({posixpath.relpath(place, posixpath.dirname(page) or '.')}{hash_}{anchor})"
        if (ROOT / name).exists() and not name.startswith("docs/"):
            return text
        return match[0]                 # MkDocs says what is wrong

    parts = _FENCE.split(markdown)
    return "".join(part if part.startswith("```") else _LINK.sub(lead, part) for part in parts)
