"""Fill the figures and verdicts of claims into docs/claims.md and docs/claims.ko.md.

    regard claims --out runs/claims
    python experiments/claims/pages.py runs/claims/result.json

The file is copied to result.json beside this script; without an argument, that copy is used.
"""

import json
import sys
from pathlib import Path

from regard.claims.tables import filled
from regard.files.whole import write_file
from regard.parts.verdicts import ENGLISH, KOREAN

HERE = Path(__file__).parent
DOCS = HERE.parents[1] / "docs"


def main() -> None:
    """Keep the result, and fill in both pages."""
    given = sys.argv[1] if len(sys.argv) > 1 else HERE / "result.json"
    text = Path(given).read_text("utf-8")
    result = json.loads(text)
    for name, words in (("claims.md", ENGLISH), ("claims.ko.md", KOREAN)):
        page = DOCS / name
        write_file(page, filled(page.read_text("utf-8"), result, words))
    write_file(HERE / "result.json", text)


if __name__ == "__main__":
    main()
