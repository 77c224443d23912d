"""Draw docs/images/report.png: the first screen of the report that `make demo` writes."""

from __future__ import annotations

import shutil
from pathlib import Path

from playwright.sync_api import sync_playwright

PAGE = Path("runs/demo/report.html")
PICTURE = Path("docs/images/report.png")


def main() -> None:
    browser = shutil.which("chromium") or shutil.which("google-chrome")
    with sync_playwright() as play:
        chrome = play.chromium.launch(executable_path=browser, args=["--no-sandbox"])
        page = chrome.new_page(viewport={"width": 1280, "height": 620})
        page.goto(PAGE.resolve().as_uri())
        page.screenshot(path=PICTURE)
        chrome.close()


if __name__ == "__main__":
    main()
