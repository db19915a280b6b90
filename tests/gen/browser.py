"""Pages in a browser without a window: used by the keyboard, and how long they take."""

import json
import os
import re
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

__all__ = ["opened", "require_usable"]

#: Put at a page's end: every control takes the focus and can be used; what that comes to is in the title.
_USE = """<script>
const wrong = [];
addEventListener("error", event => wrong.push(event.message));
addEventListener("unhandledrejection", event => wrong.push(String(event.reason)));
setTimeout(() => {
  if (document.body.dataset.ready !== "yes") wrong.push("not drawn");
  const controls = [...document.querySelectorAll("button, select, input, summary, [tabindex]")];
  for (const one of controls) {
    if (!one.isConnected) continue;     // a table that was sorted has new ones
    one.focus();
    if (document.activeElement !== one || one.tabIndex < 0) wrong.push("no focus: " + one.outerHTML.slice(0, 80));
    if (one.tagName === "BUTTON") one.click();
    for (const key of ["ArrowLeft", "ArrowRight", "+", "-", "0"])
      one.dispatchEvent(new KeyboardEvent("keydown", {key}));
  }
  for (const words of SAYS) if (!document.body.innerText.includes(words)) wrong.push("not said: " + words);
  const wide = document.documentElement.scrollWidth - innerWidth;
  if (wide > 0) wrong.push(`${wide} pixels wider than the window`);
  document.title = "used " + controls.length + ", canvases " + document.querySelectorAll("canvas").length + ": "
    + (wrong.join("; ") || "fine");
});
</script></body></html>"""
#: The same, for when the last drawing is there: milliseconds since the page was asked for.
_TIME = "<script>document.title = `drawn ${performance.now()}`;</script></body></html>"
#: Bytes of a page, at most.
_LARGEST = 5_000_000
#: Milliseconds until it is drawn, and how often it may take longer.
_SLOWEST, _TRIES = 2000, 5


def opened(page: Path, folder: Path, *options: str, theme: str = "light", size: tuple[int, int] = (1280, 900)
           ) -> subprocess.CompletedProcess[str]:
    """What the browser makes of a page: its document afterwards, and its log. ``folder``: for its files. Skips without
    a browser, but not in CI."""
    browser = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if browser is None:
        (pytest.fail if os.environ.get("CI") else pytest.skip)("Chromium is not installed (apt install chromium)")
    return subprocess.run(
        [browser, "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
         "--disable-background-networking", "--disable-component-update", "--disable-sync",
         "--enable-logging=stderr", *options, f"--window-size={size[0]},{size[1]}",
         f"--user-data-dir={folder / 'profile'}", "--dump-dom", f"{page.as_uri()}#theme={theme}"],
        capture_output=True, text=True, timeout=120)


def require_usable(page: Path, folder: Path, *, size: tuple[int, int] = (1280, 900), theme: str = "light",
                   canvases: int = 1, says: Sequence[str] = ()) -> None:
    """It is drawn within two seconds. No error is said, nothing is wider than the window of ``size``, every control can
    be reached and used by the keyboard, there are ``canvases`` drawings or more, and what it ``says`` can be read.
    Skips without a browser, but not in CI.
    """
    text = page.read_text()
    assert len(text) < _LARGEST
    used = folder / f"used-{page.name}"

    def tried(script: str, *options: str) -> subprocess.CompletedProcess[str]:
        used.write_text(text.removesuffix("</body>\n</html>\n") + script)
        return opened(used, folder, *options, theme=theme, size=size)

    # Other work on this computer may hold a page up, but hardly every time.
    times = []
    while not times or times[-1] > _SLOWEST and len(times) < _TRIES:
        (title,) = re.findall("<title>drawn (.*?)</title>", tried(_TIME).stdout)
        times.append(float(title))
    assert times[-1] <= _SLOWEST, times
    done = tried(_USE.replace("SAYS", json.dumps(list(says))), "--virtual-time-budget=20000")
    (title,) = re.findall("<title>(.*?)</title>", done.stdout)
    match = re.fullmatch(r"used (\d+), canvases (\d+): (.*)", title)
    assert match, title
    assert match[3] == "fine"
    assert int(match[1]) > 3 and int(match[2]) >= canvases, title
    assert "CONSOLE" not in done.stderr, done.stderr
