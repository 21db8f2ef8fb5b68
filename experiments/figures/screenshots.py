"""Take pictures of the page of `regard look` in Chromium, wide and narrow, for the documentation.

.venv/bin/python experiments/figures/screenshots.py runs/demo
"""

import sys
import tempfile
from pathlib import Path

from playwright.sync_api import sync_playwright

from regard.run.model_directory import open_model
from regard.view.look import look_at
from regard.view.page import attention_page

PICTURES = Path(__file__).resolve().parents[2] / "docs/figures"
SENTENCE = "The dog opened the door because it was hungry."
WIDTHS = {"look": (900, 1480, "light"), "look-narrow": (360, 900, "dark")}

found = look_at(open_model(sys.argv[1]), SENTENCE, by_words=True, listen=True)
with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
    path = Path(folder) / "look.html"
    path.write_text(attention_page(found), "utf-8")
    chromium = playwright.chromium.launch(
        executable_path="/usr/bin/chromium", args=["--no-sandbox"]
    )
    for name, (width, height, scheme) in WIDTHS.items():
        size = {"width": width, "height": height}
        tab = chromium.new_page(viewport=size, color_scheme=scheme)
        tab.goto(path.as_uri())
        tab.click(f'[id="left {found.source.index("it")}"]')
        tab.mouse.move(0, 0)
        tab.evaluate("window.scrollTo(0, 0)")
        tab.screenshot(path=PICTURES / f"{name}.png")
