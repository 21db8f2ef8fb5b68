"""The certificate of a conversion: how much the original and the converted model differ.

At the end of a conversion, the model that was read and the model that was written both process the
same fixed sentences, if both models can be run here. Some of the sentences are ordinary, others are
unusual. The results are kept with the written model, in the file `certificate.json`.
"""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Protocol, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, ValidationError

from regard.errors import ModelError
from regard.exchange.sentences import SENTENCES
from regard.files.regular import read_regular, reason
from regard.text.tokenizer import BOS, EOS

CERTIFICATE = "certificate.json"
TOLERANCE = 1e-4
"""A conversion in fp32 is refused if two corresponding logits of the two models differ by more than
TOLERANCE times the range of the logits (`Certificate.range`)."""
WRITTEN = 40
"""The maximum length of an output in a comparison, in tokens, </s> included."""
IMPOSSIBLE = -1e29
"""A logit below this value belongs to a vocabulary entry that the model never outputs. If an entry
has such a logit in both models of a conversion, the two logits are not compared."""
_BEAM = 4
_LONGEST_CERTIFICATE = 2**20

Sequences = Sequence[Sequence[int]]
"""One list of token ids for each sentence."""


class Side(Protocol):
    """A model on one side of a conversion: the model that was read, or the one that was written.

    The methods accept and return the token ids of regard's model, even if another program runs the
    model. A source ends in </s>. Outputs have neither <s> nor </s>.
    """

    @property
    def versions(self) -> Mapping[str, str]:
        """Maps the name of each package that computes this side's results to its version.

        For CTranslate2, "computed" is also mapped to the number format of the computation.
        """

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        """The source ids of each text, with </s> at the end, by the tokenizer of this side."""

    def logits(self, source: Sequence[int], target: Sequence[int]) -> NDArray[np.float32]:
        """[target, vocabulary] The logits of the next token, after each token of `target`.

        `target` begins with <s>.
        """

    def beam(self, sources: Sequences, most: int, beam: int, alpha: float) -> list[list[int]]:
        """The best output for each source, by beam search or, if `beam` is 1, by greedy search.

        An output has at most `most` tokens; this number includes </s>, which is not returned.
        `alpha` is the exponent of the length penalty, which has no effect if `beam` is 1.
        """


class Certificate(BaseModel):
    """A record of how a conversion was checked: what was run, compared and found to differ."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    conversion: str
    """The kind of conversion, such as "hf to regard"."""
    date: str
    """The day and time of the conversion, in UTC, such as "2026-01-31T12:00:00+00:00"."""
    versions: dict[str, str]
    """The versions of the packages that ran the two sides, and the number format if a side ran in
    CTranslate2. If nothing was compared, only the versions for regard's side are listed."""
    files: dict[str, str]
    """SHA-256 checksums of the files that were read. Each key is the name of a file or, if several
    files have this name, the path of the file."""
    not_run: str = ""
    """Why nothing was compared; empty if both sides were run."""
    sentences: int = 0
    """The number of sentences that both sides were given."""
    encoded: float = 0.0
    """The fraction of sentences, from 0 to 1, that both sides encode as the same ids. If both sides
    use the tokenizer of regard's model, as in exports to CTranslate2, ONNX and Argos Translate, the
    fraction is 1."""
    difference: float = 0.0
    """The largest absolute difference between corresponding logits of the two sides. Logits of
    vocabulary entries that neither model ever outputs (`IMPOSSIBLE`) are left out."""
    range: float = 0.0
    """The largest compared logit of the other program's model minus its smallest compared logit."""
    greedy: float = 0.0
    """The fraction of sentences for which greedy search gives the same output on both sides."""
    searched: float = 0.0
    """The fraction of sentences for which beam search gives the same output on both sides."""
    beam: int = 0
    alpha: float = 0.0
    penalty: str = ""
    """The kind of length penalty in the beam search, such as "length"; "" if nothing was compared.
    `alpha` is the exponent of this penalty, and `beam` is the number of hypotheses. Both sides
    search with these three settings."""

    def summary(self) -> str:
        """One line: what was compared and how much differed, or why nothing was compared."""
        if self.not_run:
            return f"nothing was compared: {self.not_run}"
        return (
            f"logits differ by {self.difference:.1e} in a range of {self.range:.3g}; of "
            f"{self.sentences} sentences, {self.encoded:.0%} are cut alike, {self.greedy:.0%} "
            f"decoded alike by greedy search and {self.searched:.0%} with beam {self.beam}"
        )

    def write(self, directory: Path) -> None:
        """Write certificate.json into a directory; raises OSError if this fails."""
        text = self.model_dump_json(indent=1) + "\n"
        (directory / CERTIFICATE).write_text(text, encoding="utf-8")

    @classmethod
    def read(cls, directory: Path) -> Self | None:
        """The certificate in a directory, or None if the directory has no certificate.

        Raises ModelError if the certificate is damaged or cannot be read.
        """
        path = directory / CERTIFICATE
        try:
            return cls.model_validate_json(read_regular(path, _LONGEST_CERTIFICATE))
        except FileNotFoundError:
            return None
        except ValidationError:
            raise ModelError(f"{path}: damaged, or not a certificate: convert again") from None
        except (OSError, ValueError) as error:
            raise ModelError(f"{path}: cannot be read: {reason(error)}: convert again") from None


def unproved(
    conversion: str, why: str, versions: Mapping[str, str], files: Mapping[str, str]
) -> Certificate:
    """A certificate without a comparison; `why` says why the other program's model was not run."""
    return Certificate(
        conversion=conversion,
        date=_now(),
        versions=dict(versions),
        files=dict(files),
        not_run=why,
    )


def certify(
    ours: Side,
    theirs: Side,
    sources: Sequence[str] = SENTENCES,
    *,
    conversion: str,
    files: Mapping[str, str],
    longest: int,
    alpha: float = 1.0,
    penalty: str = "length",
    tolerance: float | None = TOLERANCE,
) -> Certificate:
    """Run sentences through both sides, and compare the logits and the outputs.

    `ours` is regard's model, and `theirs` is the other program's model; `sources` are sentences as
    text. Sources are shortened to `longest` tokens; outputs have at most `longest` tokens, and at
    most WRITTEN. Both decoders read the greedy outputs of `ours` as targets, and the logits at each
    position are compared. `alpha` is the exponent of the length penalty in beam search. `penalty`,
    the kind of this penalty, is only recorded: both sides must already be set to it. Raises
    ModelError if the two vocabularies differ in size, if a compared logit is NaN or infinite, or if
    two logits differ by more than `tolerance` times `Certificate.range`. For an export with rounded
    weights, `tolerance` is None: then logits may differ by any finite amount.
    """
    given = ours.encode(sources)
    encoded = _share(given, theirs.encode(sources))
    ids = [[*one[:-1][: longest - 1], EOS] for one in given]
    most = min(WRITTEN, longest)
    greedy = ours.beam(ids, most, 1, 1.0)
    difference, spread = _compared(ours, theirs, ids, greedy, conversion, tolerance)
    searches = [side.beam(ids, most, _BEAM, alpha) for side in (ours, theirs)]
    return Certificate(
        conversion=conversion,
        date=_now(),
        versions={**theirs.versions, **ours.versions},
        files=dict(files),
        sentences=len(ids),
        encoded=encoded,
        difference=difference,
        range=spread,
        greedy=_share(greedy, theirs.beam(ids, most, 1, 1.0)),
        searched=_share(*searches),
        beam=_BEAM,
        alpha=alpha,
        penalty=penalty,
    )


def _compared(
    ours: Side,
    theirs: Side,
    sources: Sequences,
    targets: Sequences,
    conversion: str,
    tolerance: float | None,
) -> tuple[float, float]:
    """Compare the logits; return `Certificate.difference` and `Certificate.range`.

    Raises ModelError in the same cases as `certify`.
    """
    difference, low, high = 0.0, np.inf, -np.inf
    for source, target in zip(sources, targets, strict=True):
        a, b = (side.logits(source, [BOS, *target]) for side in (ours, theirs))
        if a.shape != b.shape:
            raise ModelError(f"{conversion}: logits of {a.shape} and of {b.shape}: not converted")
        never = (a < IMPOSSIBLE) & (b < IMPOSSIBLE)
        apart = np.where(never, 0.0, np.abs(a.astype(np.float64) - b))
        difference = max(difference, float(np.nan_to_num(apart, nan=np.inf).max(initial=0.0)))
        low, high = min(low, b[~never].min()), max(high, b[~never].max())
    spread = float(high - low)
    if not np.isfinite(difference + spread):
        raise ModelError(f"{conversion}: logits are NaN or infinite: not converted")
    if tolerance is not None and difference > tolerance * spread:
        raise ModelError(
            f"{conversion}: logits differ by {difference:.3g} in a range of {spread:.3g}, more "
            f"than {tolerance}: not converted"
        )
    return difference, spread


def _share(some: Sequences, others: Sequences) -> float:
    """The fraction of sentences, from 0 to 1, that have the same ids in `some` and `others`."""
    equal = [list(a) == list(b) for a, b in zip(some, others, strict=True)]
    return sum(equal) / max(1, len(equal))


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
