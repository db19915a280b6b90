"""The pictures of docs/gallery.md.

    python -m tests.gallery

runs the commands of the page on the bundled model, opens what they write in Chromium, and takes the pictures.
"""

import os
import re
import shlex
import shutil
import subprocess
import tempfile
from io import BytesIO
from pathlib import Path

from PIL import Image

from gen.cli import main
from tests import ROOT

__all__ = ["FOLDER", "PICTURES", "commands", "draw"]

FOLDER = ROOT / "docs" / "gallery"
#: Name -> page, its colours, the heading that the picture begins with ("" for the top), and the size of the window.
PICTURES = {
    "report": ("report.html", "light", "", (1200, 860)),
    "timeline": ("report.html", "light", "timeline", (1200, 860)),
    "phone": ("report.html", "dark", "", (500, 860)),
    "compare": ("compare.html", "light", "", (1200, 860)),
    "explore": ("explore.html", "light", "", (1200, 860)),
    "build": ("build.html", "light", "", (1200, 860)),
}
#: Removes what is above a heading: a picture is of the top of a page.
_ABOVE = """<script>
for (let one = document.getElementById("%s"); one && one !== document.body; one = one.parentNode)
  while (one.previousSibling) one.previousSibling.remove();
</script></body></html>"""
_COLOURS = 256


def commands() -> list[list[str]]:
    """Of the page, without what calls them."""
    text = (ROOT / "docs" / "gallery.md").read_text().replace("\\\n", " ")
    return [shlex.split(line) for line in re.findall(r"^ +python -m gen (.*)$", text, re.M)]


def draw() -> None:
    """All pictures. Raises RuntimeError where there is no Chromium."""
    browser = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if browser is None:
        raise RuntimeError("Chromium is not installed (apt install chromium)")
    FOLDER.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        Path("examples").symlink_to(ROOT / "examples")
        for argv in commands():
            if main(argv):
                raise RuntimeError(shlex.join(argv))
        for name, (page, theme, heading, (width, height)) in PICTURES.items():
            place = Path("build", f"{name}-{page}").absolute()
            place.write_text(Path("build", page).read_text().removesuffix("</body>\n</html>\n") + _ABOVE % heading)
            subprocess.run([browser, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars",
                            "--virtual-time-budget=5000", f"--user-data-dir={folder}/profile",
                            f"--window-size={width},{height}", "--screenshot=picture.png",
                            f"{place.as_uri()}#theme={theme}"], check=True, capture_output=True)
            buffer = BytesIO()
            few = Image.open("picture.png").convert("RGB").quantize(_COLOURS, Image.Quantize.MAXCOVERAGE)
            few.save(buffer, "PNG", optimize=True)
            (FOLDER / f"{name}.png").write_bytes(buffer.getvalue())


if __name__ == "__main__":
    draw()
