"""Several runs that differ only in their seeds, for an ensemble or a comparison."""

from collections.abc import Iterator
from dataclasses import replace

from regard.start import MINUTES, Start


def members(start: Start, count: int) -> Iterator[Start]:
    """Yield the starts of `count` runs, in OUT/seed-1, OUT/seed-2 and so on, with different seeds.

    The runs divide the time, and share the data, the tokenizer and the recipe of the first run. The
    first run must have begun before the second start is taken.
    """
    timed = start.minutes or (MINUTES if start.chooses_for_text else None)
    minutes = timed and timed / count
    first = start.out / "seed-1"
    for seed in range(1, count + 1):
        its = (*start.assignments, f"training.seed={seed}")
        if seed == 1:
            yield replace(start, out=first, assignments=its, minutes=minutes)
            continue
        yield Start(
            start.out / f"seed-{seed}",
            data=start.data or first / "data",
            recipe=str(first / "recipe.toml"),
            assignments=its,
            start_from=start.start_from,
            minutes=minutes,
        )
