"""What MkDocs calls (mkdocs.yml, ``hooks``): it adds the pages of `tests.site.pages`, and leads links anew."""

import os
import sys
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page
from pymdownx.slugs import slugify

# MkDocs imports this file alone, and from wherever it was started.
sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from gen.report.sheet import version  # noqa: E402
from tests.site.pages import BESIDE, GENERATED, SCRIPT, beside_text, elsewhere, led_anew  # noqa: E402

__all__ = ["on_config", "on_files", "on_page_markdown", "on_post_page"]


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    # Links to headings are those of the repository's viewers.
    config.mdx_configs.setdefault("toc", {})["slugify"] = slugify(case="lower")
    config.copyright = f"npugen {version()}"
    config.extra["polyfills"] = [SCRIPT.name]       # before the theme looks for one
    # `mike` sets it while it builds; it brings what a chooser of versions reads, which pages from the disk do not have.
    if os.environ.get("MIKE_DOCS_VERSION"):
        config.extra["version"] = {"provider": "mike"}
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    for place in BESIDE:
        files.append(File.generated(config, place, content=beside_text(place)))
    files.append(File.generated(config, SCRIPT.name, content=SCRIPT.read_text()))
    for place, made in GENERATED.items():
        files.append(File.generated(config, place, content=made()))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    place = page.file.src_uri
    if place in GENERATED:
        return markdown
    return led_anew(markdown, place, lambda name: files.get_file_from_path(name) is not None)


def on_post_page(output: str, page: Page, config: MkDocsConfig) -> str:
    if found := elsewhere(output):
        raise PluginError(f"{page.file.src_uri} fetches {', '.join(found)}: a page needs no network")
    return output
