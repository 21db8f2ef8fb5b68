"""The model card (README.md) of an exported model: usage, scores and recipe (configuration)."""

from __future__ import annotations

from typing import Any

from regard import __version__
from regard.run.model_directory import Model

_ABOUT = """# A translator trained with regard

The Transformer of "Attention Is All You Need" (Vaswani et al. 2017): {size}, written for
{program} by regard {version}.

{usage}

## Scores

{scores}

`certificate.json` tells what was compared with regard when this model was written, and what
differed.

## Recipe

```toml
{recipe}```
"""


_HF_HEAD = """---
library_name: transformers
pipeline_tag: translation
tags: [translation, marian, regard]
---

"""
_HF_USAGE = """```python
from transformers import AutoTokenizer, MarianMTModel

tokenizer, model = AutoTokenizer.from_pretrained(path), MarianMTModel.from_pretrained(path)
batch = tokenizer(["A dog sleeps."], return_tensors="pt", padding=True)
batch.pop("token_type_ids", None)
print(tokenizer.batch_decode(model.generate(**batch), skip_special_tokens=True))
```
"""
_ARGOS_USAGE = """```python
import argostranslate.package
import argostranslate.translate

argostranslate.package.install_from_path(path)
print(argostranslate.translate.translate("A dog sleeps.", "{source}", "{target}"))
```"""


def hf_card(model: Model) -> str:
    """The model card of this model as a `MarianMTModel` of the library `transformers`."""
    differences = "\n".join(f"- {line}" for line in _differences(model))
    usage = f"{_HF_USAGE}\n## What differs from regard\n\n{differences}"
    return _HF_HEAD + _about(model, "`MarianMTModel`", usage)


def argos_card(model: Model, source: str, target: str) -> str:
    """The model card of this model as a package of Argos Translate for a pair of languages."""
    usage = _ARGOS_USAGE.format(source=source, target=target)
    return _about(model, f"Argos Translate, from {source} to {target},", usage)


def _about(model: Model, program: str, usage: str) -> str:
    recipe = model.recipe.model
    parameters = model.network.parameter_count
    return _ABOUT.format(
        size=f"{recipe.depth} layers, d_model {recipe.d_model}, {parameters:,} parameters",
        program=program,
        version=__version__,
        usage=usage,
        scores=_scores(model.manifest, model.recipe.training.bleu_tokenizer),
        recipe=model.recipe.to_toml(),
    )


def _differences(model: Model) -> list[str]:
    """Sentences that tell how `transformers` runs the exported model differently from regard."""
    search, norm = model.recipe.search, model.recipe.model.norm_epsilon
    lines = []
    if search.alpha:
        power = f"^{search.alpha:g}"
        if search.penalty == "gnmt":
            lines.append(
                f"`transformers` divides the log-probability of n tokens by n{power}; regard "
                f"divides it by ((5 + n) / 6){power}, which favours long outputs less."
            )
    if search.finish == "candidates" and search.beam > 1:
        lines.append(
            f"In `transformers`, only the best {search.beam} continuations of a step may finish, "
            "and the search ends when no live hypothesis has a better score at its present length. "
            f"In regard, the best {2 * search.beam} may finish, and the search ends when no live "
            "hypothesis could have a better score at any length."
        )
    lines.append(
        "In `transformers`, all outputs have the same maximum length (`max_length`); in regard, "
        f"the maximum is the length of the source plus {search.max_extra} tokens."
    )
    if norm != 1e-5:
        lines.append(
            "In layer normalisation, `MarianMTModel` adds 1e-5 to the variance; the model was "
            f"trained with {norm:g}."
        )
    return lines


def _scores(manifest: dict[str, Any], words: str) -> str:
    found = manifest.get("last_validation")
    if not isinstance(found, dict) or not found:
        return "No scores are recorded with the model."
    bleu = "BLEU" if words == "13a" else f"BLEU, words divided by {words}"
    names = {"bleu": bleu, "perplexity": "perplexity", "accuracy": "accuracy of tokens, %"}
    lines = [f"| {name} | {found[key]:.2f} |" for key, name in names.items() if key in found]
    step = f"after step {found['step']:,}" if isinstance(found.get("step"), int) else "at the end"
    return "\n".join([f"| on the validation set, {step} of the training | |", "|---|---|", *lines])
