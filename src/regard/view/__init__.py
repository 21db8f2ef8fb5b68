"""Attention Visualizations: the weights of every head of one sentence, and pictures of them.

    pieces -> recording -> account -> look -> page, figures, heat

`look` translates a sentence, or takes a translation as it is, and keeps the weights with which each
head attended; the others show them.
"""
