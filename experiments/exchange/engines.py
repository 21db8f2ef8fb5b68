"""Compare the translations by exported models with those by regard, on real sentences.

    python engines.py MODEL SOURCE REFERENCE

The script exports a model to CTranslate2 (fp32, int8) and ONNX, translates with each engine and
with regard by the same search, and prints, as JSON, the share of translations that equal regard's,
and the BLEU of each.
"""

import json
import sys
import tempfile
from pathlib import Path

from sacrebleu.metrics import BLEU

from regard.engines.opening import load_exported
from regard.exchange.exporting import write_export
from regard.files.lines import read_lines
from regard.translation import load

SEARCHES = ({"beam": 1}, {"beam": 4, "alpha": 0.0}, {"beam": 4, "alpha": 0.6})
EXPORTS = (("ctranslate2", "fp32"), ("ctranslate2", "int8"), ("onnx", "fp32"))


def main(model: str, source: str, reference: str) -> None:
    lines, references = (list(read_lines(path)) for path in (source, reference))
    ours = load(model, exact=False)
    ours.recipe = ours.recipe.but(finish="beam")
    written = {}
    for search in SEARCHES:
        ours.recipe = ours.recipe.but(**search)
        written[str(search)] = ours.translate(lines)
    rows = [
        {"by": "regard", "search": search, "bleu": bleu(written[str(search)], references)}
        for search in SEARCHES
    ]
    with tempfile.TemporaryDirectory() as folder:
        for engine, precision in EXPORTS:
            out = Path(folder) / f"{engine}-{precision}"
            certificate = write_export(
                engine, Path(model), out, precision=precision, changes=["search.finish=beam"]
            )
            theirs = load_exported(out, engine)
            for search in SEARCHES:
                theirs.recipe = theirs.recipe.but(**search)
                found = theirs.translate(lines)
                equal = sum(a == b for a, b in zip(found, written[str(search)], strict=True))
                row = {"by": f"{engine} {precision}", "search": search}
                row |= {"bleu": bleu(found, references), "equal": equal / len(lines)}
                rows.append(row | {"difference": certificate.difference})
    sys.stdout.write(json.dumps({"sentences": len(lines), "rows": rows}, indent=1) + "\n")


def bleu(written: list[str], references: list[str]) -> float:
    return round(BLEU().corpus_score(written, [references]).score, 2)


if __name__ == "__main__":
    main(*sys.argv[1:])
