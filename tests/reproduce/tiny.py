"""A scale whose rows are trained in a second."""

from regard.reproduce.scales import MINI_BASE, Mini

TINY = Mini(
    MINI_BASE.but(layers=1, d_model=32, d_ff=32, steps=4, validate_every=4, save_every=2,
                  average=1, vocabulary=400, max_extra=3, source_tokens=256, target_tokens=256,
                  validate_sentences=4),
    pairs=200, validated=6, tested=5,
)  # fmt: skip
