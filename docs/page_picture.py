"""Draw docs/fit.png, the upper part of a fit's page, in Chromium: python docs/page_picture.py FOLDER."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from PIL import Image
from playwright.sync_api import sync_playwright

WIDTH = 1000


def picture(page_file: Path, image: Path) -> None:
    """Write what is above the figures of the slider's point, in 64 colours."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": WIDTH, "height": 900}, color_scheme="light")
        page.goto(page_file.resolve().as_uri())
        height = page.evaluate("document.getElementById('told').getBoundingClientRect().bottom + scrollY + 20")
        page.screenshot(path=image, full_page=True, clip={"x": 0, "y": 0, "width": WIDTH, "height": height})
        browser.close()
    Image.open(image).convert("RGB").quantize(64).save(image, optimize=True)


if __name__ == "__main__":
    picture(Path(sys.argv[1]) / "report.html", Path(__file__).with_name("fit.png"))
