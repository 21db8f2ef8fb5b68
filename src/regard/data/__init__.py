"""§5.1 Training data: from text or trees to token ids on disk, and from those to batches.

A corpus of aligned text is read three times (`prepare`): `survey` checks every pair, the tokenizer
is learned from a sample, and `encoding` writes the ids. `treebank` does this for trees (§6.3).
`pairs` is the prepared data on disk. `layouts` decides which pairs share a row and which rows a
batch, `batches` forms the batches, and `prefetch` forms them ahead of need in another process.
"""
