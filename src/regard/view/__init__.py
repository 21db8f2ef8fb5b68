"""Attention visualizations: the weights of every head for one sentence, and pictures of them.

An arrow leads from modules to the modules that use them:

    pieces            ->  account, alignment, look
    recording         ->  alignment, look
    account           ->  look
    look              ->  page, figures, heat
    colours           ->  page, figures
    drawing           ->  figures, architecture, multihead
    parts             ->  architecture, multihead
    architecture      ->  multihead

`look` translates a sentence, or takes a given translation, and keeps the attention weights of every
head; `page`, `figures` and `heat` show these weights. `alignment` pairs the words of a sentence and
its translation by attention. `architecture` and `multihead` draw Figures 1 and 2 of a model.
"""
