"""The pages of docs/, the menus of mkdocs.yml and the list in docs/README.md have the same."""

from collections.abc import Iterator, Set

from tests import ROOT
from tests.site.pages import BESIDE, GENERATED, navigation

#: Folders whose pages the list leads to by one of them.
_INNER = ("decisions/", "logs/")


def broken() -> Iterator[str]:
    """A line for each page that is in one of them and not in another, or in a menu twice."""
    pages = {str(path.relative_to(ROOT / "docs")) for path in (ROOT / "docs").rglob("*.md")}
    yield from unlike({*pages, *BESIDE, *GENERATED}, navigation())
    listed = (ROOT / "docs" / "README.md").read_text()
    for name in sorted(pages - {"README.md"}):
        if f"]({name})" not in listed and not name.startswith(_INNER):
            yield f"docs/{name}: not in the list of docs/README.md"


def unlike(pages: Set[str], menus: list[str]) -> Iterator[str]:
    for name in sorted(pages - set(menus)):
        yield f"docs/{name}: in no menu of mkdocs.yml"
    for name in sorted(set(menus) - pages):
        yield f"mkdocs.yml: {name} is no page"
    for name in sorted({name for name in menus if menus.count(name) > 1}):
        yield f"mkdocs.yml: {name} is in two menus"
