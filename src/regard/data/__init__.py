"""§5.1 Training data: from text or trees to token ids on disk, and from those ids to batches.

`prepare` reads a corpus of aligned text several times. If only a share of the pairs is wanted,
`drawing` draws it. Then `survey` checks every pair. If no tokenizer is given, `learning` learns one
from a sample. Finally, `encoding` writes the ids. For trees, `treebank` checks, learns and encodes
(§6.3). `pairs` reads and writes the prepared data. `layouts` decides which pairs share a row and
which rows share a batch, and `batches` makes the batches. `training_data` makes the batches with
the settings of a recipe; with `prefetch`, another process makes the batches in advance.
"""
