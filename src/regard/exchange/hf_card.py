"""The model card of an exported model: README.md, with our scores and recipe."""

from __future__ import annotations

from typing import Any

from regard import __version__
from regard.run.model_directory import Model

_CARD = """---
library_name: transformers
pipeline_tag: translation
tags: [translation, marian, regard]
---

# A translator trained with regard

The Transformer of "Attention Is All You Need" (Vaswani et al. 2017): {size}, written for
`MarianMTModel` by regard {version}.

```python
from transformers import AutoTokenizer, MarianMTModel

tokenizer, model = AutoTokenizer.from_pretrained(path), MarianMTModel.from_pretrained(path)
batch = tokenizer(["A dog sleeps."], return_tensors="pt", padding=True)
batch.pop("token_type_ids", None)
print(tokenizer.batch_decode(model.generate(**batch), skip_special_tokens=True))
```

## Scores

{scores}

## What differs from regard

{differences}

`certificate.json` holds what was compared when this directory was written.

## Recipe

```toml
{recipe}```
"""


def card(model: Model) -> str:
    """The model card of this model, as the text of README.md."""
    recipe = model.recipe.model
    parameters = sum(weights.numel() for weights in model.network.parameters())
    return _CARD.format(
        size=f"{recipe.depth} layers, d_model {recipe.d_model}, {parameters:,} parameters",
        version=__version__,
        scores=_scores(model.manifest),
        differences="\n".join(f"- {line}" for line in _differences(model)),
        recipe=model.recipe.to_toml(),
    )


def _differences(model: Model) -> list[str]:
    """Sentences that tell in what `transformers` differs from regard."""
    search, norm = model.recipe.search, model.recipe.model.norm_epsilon
    lines = []
    if search.alpha:
        power = f"^{search.alpha:g}"
        if search.penalty == "gnmt":
            lines.append(
                f"Scores are divided by n{power} for n tokens; regard divides by "
                f"((5 + n) / 6){power}, which favours long outputs less."
            )
    if search.finish == "candidates" and search.beam > 1:
        lines.append(
            f"Only the best {search.beam} continuations of a step may finish, and a search ends "
            "when no live hypothesis is better at its present length; in regard, the best "
            f"{2 * search.beam} may finish, and it ends when none could be better at any length."
        )
    lines.append(
        "Outputs have one greatest length (`max_length`); in regard, each has its source's and "
        f"{search.max_extra} more."
    )
    if norm != 1e-5:
        lines.append(
            f"Layer normalisation adds 1e-5 to the variance, as Marian's does; the model was "
            f"trained with {norm:g}."
        )
    return lines


def _scores(manifest: dict[str, Any]) -> str:
    found = manifest.get("last_validation")
    if not isinstance(found, dict):
        return "None are recorded with the model."
    names = {"bleu": "BLEU", "perplexity": "perplexity", "accuracy": "accuracy of tokens, %"}
    lines = [f"| {name} | {found[key]:.2f} |" for key, name in names.items() if key in found]
    return "\n".join(["| on the validation set | |", "|---|---|", *lines])
