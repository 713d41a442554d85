"""A page as a real browser lays it out: Debian's chromium, which is installed if it is missing."""

import json
import os
import re
import shutil
import subprocess
from html import unescape

MEASURE = """<script>addEventListener("load", () => {
  const images = [...document.images], width = document.documentElement.clientWidth;
  const wide = [...document.body.querySelectorAll("body > *, section > *, figure > *")];
  parent.postMessage({
    width: innerWidth, scroll: document.documentElement.scrollWidth, images: images.length,
    broken: images.filter(image => !image.complete || !image.naturalWidth).length,
    over: wide.filter(element => element.getBoundingClientRect().right > width + 1).length,
  }, "*");
})</script>"""
FRAMES = """<!doctype html><pre id="found"></pre>{frames}
<script>addEventListener("message", event => { found.textContent += JSON.stringify(event.data) + "\\n" })</script>"""


def chromium():
    """The browser, or why there is none."""
    found = shutil.which("chromium")
    if not found and shutil.which("apt-get") and os.geteuid() == 0:
        for command in (["apt-get", "update"], ["apt-get", "install", "-y", "--no-install-recommends", "chromium"]):
            subprocess.run(command, capture_output=True, check=False, timeout=600)
        found = shutil.which("chromium")
    return (
        found,
        "" if found else "chromium is missing and could not be installed with apt-get: the page was NOT looked at",
    )


def measured(browser, page, folder, widths):
    """What the browser finds of the page at each width, narrow first, and what it writes to its console.

    A window cannot be narrower than 500 pixels; a frame can.
    """
    copy, frames = folder / "measured.html", folder / "frames.html"
    copy.write_text(page.read_text().replace("</body>", MEASURE + "</body>"))
    frame = "<iframe src='measured.html' style='width:{}px;height:800px;border:0'></iframe>"
    frames.write_text(FRAMES.replace("{frames}", "".join(frame.format(width) for width in widths)))
    options = ["--headless", "--no-sandbox", "--disable-gpu", "--window-size=1800,900", "--enable-logging=stderr"]
    options += [f"--user-data-dir={folder / 'profile'}", "--virtual-time-budget=10000", "--dump-dom"]
    done = subprocess.run([browser, *options, frames.as_uri()], capture_output=True, text=True, check=True, timeout=120)
    found = re.search(r'<pre id="found">(.*?)</pre>', done.stdout, re.DOTALL)[1]
    console = [line for line in done.stderr.splitlines() if "CONSOLE" in line]
    seen = [json.loads(line) for line in unescape(found).splitlines() if line]
    return sorted(seen, key=lambda one: one["width"]), console  # frames are done in any order
