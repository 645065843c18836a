"""Look at the built site in a browser: links hold, search finds, nothing is wider than a phone.

    python tools/check_site.py [--screenshots FOLDER]

Needs `make site`, playwright from PyPI and a Chromium of the system.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import http.server
import shutil
import sys
import threading
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urldefrag, urljoin, urlparse

ROOT = Path(__file__).resolve().parent.parent
SITE = ROOT / "build" / "site" / "html"
# What users type, and a page that has to be among the first five results.
SEARCHES = {
    "DDP": "distributed",
    "FSDP": "distributed",
    "QAT": "",
    "mixed precision": "",
    "graph break": "graph-breaks",
    "softmax": "normalization",
    "conv2d": "",
    "onnx export": "onnx",
    "torchrun": "distributed",
    "seed": "",
}
PHONE, DESK = {"width": 390, "height": 844}, {"width": 1440, "height": 900}


class Page(HTMLParser):
    """The links of a page and the names within it."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.names: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        values = dict(attributes)
        self.names.update(name for key in ("id", "name") if (name := values.get(key)))
        target = values.get("href") if tag == "a" else values.get("src") if tag == "img" else None
        if target:
            self.links.append(target)


def broken_links() -> list[str]:
    """Links of the site to pages or to places in pages that are not there."""
    pages = {path.relative_to(SITE).as_posix(): Page(path.read_text()) for path in SITE.rglob("*.html")}
    broken = []
    for name, page in pages.items():
        for link in page.links if name != "404.html" else ():
            target, place = urldefrag(urljoin(f"http://site/{name}", link))
            path = unquote(urlparse(target).path).lstrip("/") or "index.html"
            if urlparse(target).netloc != "site":
                continue
            linked = pages.get(path)
            if (linked is None and not (SITE / path).is_file()) or (
                linked and place and unquote(place) not in linked.names
            ):
                broken.append(f"{name}: {link}")
    return broken


@contextlib.contextmanager
def served() -> Iterator[str]:
    handler = functools.partial(Quiet, directory=str(SITE))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *args: Any) -> None:
        pass


# The search lies in a shadow root of its own.
LINKS = """[...document.querySelectorAll('*')].filter(element => element.shadowRoot)
  .flatMap(element => [...element.shadowRoot.querySelectorAll('a')]).map(link => link.getAttribute('href'))"""


def results(page: Any, words: str) -> list[str]:
    """The pages that a search lists first."""
    page.keyboard.press("Control+A")
    page.keyboard.press("Backspace")
    page.wait_for_function(f"() => ({LINKS}).length == 0")
    page.keyboard.type(words)
    page.wait_for_function(f"() => ({LINKS}).length > 0")
    links, before = page.evaluate(LINKS), None
    while links != before:  # the list follows what is typed, letter by letter
        page.wait_for_timeout(700)
        links, before = page.evaluate(LINKS), links
    return [str(link) for link in links[:8]]


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--screenshots", type=Path, default=ROOT / "build" / "site" / "screenshots")
    options = parser.parse_args(arguments)
    from playwright.sync_api import sync_playwright

    options.screenshots.mkdir(parents=True, exist_ok=True)
    wrong = [f"broken link: {link}" for link in broken_links()]
    with served() as address, sync_playwright() as browsers:
        browser = browsers.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox", "--disable-gpu"]
        )
        page = browser.new_page(viewport=DESK)
        page.set_default_timeout(60_000)
        page.on("pageerror", lambda error: wrong.append(f"script error: {error}"))
        page.goto(f"{address}/index.html", timeout=120_000)
        page.screenshot(path=options.screenshots / "desk.png")
        page.locator(".md-search__button").first.click()
        for words, expected in SEARCHES.items():
            try:
                links = results(page, words)
            except Exception as error:
                wrong.append(f"search {words!r}: {str(error).splitlines()[0]}")
                continue
            print(f"search {words!r}: {links[:3]}", flush=True)
            if not any(expected in link for link in links):
                wrong.append(f"search {words!r}: expected {expected}, got {links}")
        page.screenshot(path=options.screenshots / "search.png")
        phone = browser.new_page(viewport=PHONE, java_script_enabled=False)  # the layout is that of the style sheets
        for path in sorted(SITE.rglob("*.html")):
            name = path.relative_to(SITE).as_posix()
            phone.goto(f"{address}/{name}", wait_until="domcontentloaded", timeout=120_000)
            width = phone.evaluate("document.documentElement.scrollWidth")
            if width > PHONE["width"]:  # perhaps the style sheets were still on their way
                phone.wait_for_load_state("load", timeout=120_000)
                width = phone.evaluate("document.documentElement.scrollWidth")
            if width > PHONE["width"]:
                wrong.append(f"{name}: {width} pixels wide on a phone of {PHONE['width']}")
            if name in ("index.html", "reference/nn.html", "distributed.html"):
                phone.screenshot(path=options.screenshots / f"phone-{path.stem}.png")
        browser.close()
    print("\n".join(wrong) or "links hold, searches find, pages fit a phone")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
