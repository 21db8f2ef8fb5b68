"""Attention visualizations: the weights of every head for one sentence, and pictures of them.

    pieces, recording, account -> look -> page, figures, heat

`look` translates a sentence, or takes a given translation, and keeps the attention weights of every
head; `page`, `figures` and `heat` show these weights.
"""
