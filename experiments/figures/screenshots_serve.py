"""Take pictures of the page of `regard serve` in Chromium: wide, and narrow in Korean.

.venv/bin/regard serve runs/demo=en-de --port 5000 &
.venv/bin/python experiments/figures/screenshots_serve.py http://127.0.0.1:5000
"""

import sys
from pathlib import Path

from playwright.sync_api import sync_playwright

PICTURES = Path(__file__).resolve().parents[2] / "docs/figures"
TEXT = "The dog opened the door because it was hungry. The small cat sees the bird."
PAGES = {
    "serve": {"viewport": {"width": 1000, "height": 620}, "locale": "en-GB"},
    "serve-narrow": {
        "viewport": {"width": 360, "height": 900},
        "locale": "ko-KR",
        "color_scheme": "dark",
    },
}

with sync_playwright() as playwright:
    chromium = playwright.chromium.launch(
        executable_path="/usr/bin/chromium", args=["--no-sandbox"]
    )
    for name, options in PAGES.items():
        tab = chromium.new_page(**options)
        tab.goto(sys.argv[1])
        tab.fill("#text", TEXT)
        tab.wait_for_selector("#others > li:nth-child(2)")
        tab.locator(".word").nth(1).hover()
        tab.screenshot(path=PICTURES / f"{name}.png")
