"""§5.1 Training data: from text or trees to token ids on disk, and from those ids to batches.

A corpus of aligned text is read several times (`prepare`): `drawing` draws a share of the pairs, if
only a share is wanted; `survey` checks every pair; if no tokenizer is given, `learning` learns one
from a sample; `encoding` writes the ids. `treebank` prepares trees in the last three of these
stages (§6.3). `pairs` reads and writes the prepared data. `layouts` decides
which pairs share a row and which rows share a batch, and `batches` makes the batches.
`training_data` makes the batches with the settings of a recipe; with `prefetch`, another process
makes the batches in advance.
"""
