"""Attention visualizations: the weights of every head for one sentence, and pictures of them.

Each of these modules may use the listed modules to its left, and no other listed module:

    pieces, recording, account -> look -> page, figures, heat
    drawing -> figures, architecture -> multihead

`look` translates a sentence, or takes a given translation, and keeps the attention weights of every
head; `page`, `figures` and `heat` show these weights. `architecture` and `multihead` draw a model
itself: Figures 1 and 2.
"""
