"""Tables 2, 3 and 4 of the paper as values: all printed results, and recipes of the paper's models.

The paper is "Attention Is All You Need", arXiv 1706.03762v7. The docstrings below name the main
choices that the paper does not print, and say where they are from. All other values that the paper
does not print are defaults of `Recipe`. A recipe of Table 3 is the base model with the changes
printed in the table. `big` also saves its checkpoints at other steps, and averages more of them
(§6.1). In a recipe file, `base = "A1"`, or any other name in `PAPER_RECIPES`, starts from that
recipe. Table 1 is in `complexity`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

from regard.recipe import ModelRecipe, Recipe
from regard.sizes import family_sizes

BASE = Recipe().but(initial="joined", save_every=1500, save_minutes=0.0, resume_minutes=10.0)
"""The base model, English to German (§3, §5).

§6.1 averages 5 checkpoints "written at 10-minute intervals". At 0.4 s a step (§5.2), 10 minutes are
1,500 steps, so a checkpoint for the average is saved every 1,500 steps, however fast the machine
is. Further checkpoints, one every 10 minutes, serve only to resume the run. The paper does not
print how weights are initialised; this recipe initialises them as the authors' code does. All other
values are the defaults of `Recipe`.
"""

BASE_EN_FR = BASE.but(kind="wordpiece", vocabulary=32_000)
"""The base model, English to French, with 32,000 word pieces (§5.1); Table 2 prints 38.1 BLEU."""

BIG = BASE.but(
    d_model=1024, d_ff=4096, heads=16, dropout=0.3, steps=300_000, save_every=600, keep=20,
    average=20
)  # fmt: skip
"""The big model, English to German: the last row of Table 3.

It averages 20 checkpoints (§6.1), saved 10 minutes apart: 600 steps at 1.0 s a step (§5.2).
"""

BIG_EN_FR = BIG.but(dropout=0.1, kind="wordpiece", vocabulary=32_000)
"""The big model, English to French: dropout 0.1 (§6.1) and 32,000 word pieces (§5.1).

The authors' code for this model has d_ff 8192, and a matrix before the softmax that is not shared
with the embeddings. The paper's text mentions neither difference, and the parameter count that
Table 3 prints for the big model is the count with d_ff 4096 and a shared matrix.
"""

TABLE_3: Mapping[str, Recipe] = MappingProxyType(
    {
        "base": BASE,
        "A1": BASE.but(heads=1, d_k=512, d_v=512),
        "A2": BASE.but(heads=4, d_k=128, d_v=128),
        "A3": BASE.but(heads=16, d_k=32, d_v=32),
        "A4": BASE.but(heads=32, d_k=16, d_v=16),
        "B1": BASE.but(d_k=16),
        "B2": BASE.but(d_k=32),
        "C1": BASE.but(layers=2),
        "C2": BASE.but(layers=4),
        "C3": BASE.but(layers=8),
        "C4": BASE.but(d_model=256, d_k=32, d_v=32),
        "C5": BASE.but(d_model=1024, d_k=128, d_v=128),
        "C6": BASE.but(d_ff=1024),
        "C7": BASE.but(d_ff=4096),
        "D1": BASE.but(dropout=0.0),
        "D2": BASE.but(dropout=0.2),
        "D3": BASE.but(label_smoothing=0.0),
        "D4": BASE.but(label_smoothing=0.2),
        "E": BASE.but(positions="learned", max_positions=306),
        "big": BIG,
    }
)
"""Table 3 in the paper's order. The letters are the paper's groups; the digits number the rows of a
group and are not printed in the paper. The paper does not print how many positions row E learned.
This recipe has 306: enough for the longest training sentence, 256 pieces, and the 50 more that its
translation may have (§6.1).

Table 3 was scored on newstest2013 without averaging (§6.2), by beam search as in §6.1. A validation
measures the weights of one step. So the last validation of a run can be compared with Table 3, if
newstest2013 is the validation set of the run and all 3,000 sentences are decoded
(`training.validate_sentences = 3000`). The final model of the run is an average, as in Table 2.
"""

WSJ = BASE.but(
    output="trees", layers=4, d_model=1024, dropout=0.2, attention_dropout=0.2, rate=0.5,
    warmup_steps=16_000, max_length=512, row_length=512, kind="wordpiece", vocabulary=16_000,
    beam=21, alpha=0.3, max_extra=300
)  # fmt: skip
"""§6.3: the parser trained on the Wall Street Journal only.

The paper tuned both dropouts and the learning rate on section 22 and does not print them. This
recipe takes dropouts of 0.2, 16,000 warm-up steps, sentences of up to 512 pieces, and word pieces
from the authors' released code. In that code, a factor multiplies the learning rate. The base model
has the factor 0.1, which gives the rate of equation (3). The parser has 0.05, which gives half of
this rate, as in this recipe. In an earlier file of the authors, the parser has 0.5, which gives
five times this rate; we guess that the later factor corrects the earlier one. The authors' code has
6 layers, and a separate matrix before the softmax; this recipe, like the paper, has 4 layers and
one shared matrix.
"""

WSJ_SEMI = WSJ.but(dropout=0.1, attention_dropout=0.1, warmup_steps=4000, vocabulary=32_000)
"""§6.3: the semi-supervised parser.

Residual dropout, warm-up and learning rate are as in the authors' released code. The model of that
code has 16 heads and d_ff 4096; this recipe, like the paper, has the sizes of `WSJ`. The attention
dropout of 0.1 is a guess: the paper tuned the attention dropout and does not print it, and an early
file of the authors has none.
"""

PAPER_RECIPES: Mapping[str, Recipe] = MappingProxyType(
    {**TABLE_3, "base-en-fr": BASE_EN_FR, "big-en-fr": BIG_EN_FR, "wsj": WSJ, "wsj-semi": WSJ_SEMI}
)
"""All recipes of the paper by name."""


# Table 2 and the training behind it ---------------------------------------------------------------
@dataclass(frozen=True, slots=True)
class Table2Row:
    """A row of Table 2, on newstest2014; None where the paper leaves a blank."""

    en_de: float | None
    """BLEU, English to German."""
    en_fr: float | None
    """BLEU, English to French."""
    en_de_flops: float | None
    """Training cost in floating-point operations, English to German."""
    en_fr_flops: float | None
    """Training cost in floating-point operations, English to French."""


TABLE_2: Mapping[str, Table2Row] = MappingProxyType(
    {
        "ByteNet": Table2Row(23.75, None, None, None),
        "Deep-Att + PosUnk": Table2Row(None, 39.2, None, 1.0e20),
        "GNMT + RL": Table2Row(24.6, 39.92, 2.3e19, 1.4e20),
        "ConvS2S": Table2Row(25.16, 40.46, 9.6e18, 1.5e20),
        "MoE": Table2Row(26.03, 40.56, 2.0e19, 1.2e20),
        "Deep-Att + PosUnk Ensemble": Table2Row(None, 40.4, None, 8.0e20),
        "GNMT + RL Ensemble": Table2Row(26.30, 41.16, 1.8e20, 1.1e21),
        "ConvS2S Ensemble": Table2Row(26.36, 41.29, 7.7e19, 1.2e21),
        "Transformer (base model)": Table2Row(27.3, 38.1, 3.3e18, 3.3e18),
        "Transformer (big)": Table2Row(28.4, 41.8, 2.3e19, 2.3e19),
    }
)
"""Table 2. For the two Transformers the paper prints one cost for both language pairs."""

BIG_EN_FR_IN_TEXT = 41.0
"""BLEU of the big English-French model in the text of §6.1. Table 2 and the abstract print 41.8;
the text still has the number of the paper's first versions."""

SUSTAINED_FLOPS: Mapping[str, float] = MappingProxyType(
    {"K80": 2.8e12, "K40": 3.7e12, "M40": 6.0e12, "P100": 9.5e12}
)
"""Single-precision operations per second of each GPU, as assumed in a footnote of §6.1."""


@dataclass(frozen=True, slots=True)
class TrainingTime:
    """§5.2: the training time of a model on eight P100 GPUs."""

    steps: int
    seconds_per_step: float
    hours: float
    """Total time as printed; it is slightly more than steps * seconds_per_step."""
    gpus: int = 8
    gpu: str = "P100"

    @property
    def flops(self) -> float:
        """The training cost of Table 2: time x number of GPUs x sustained speed of a GPU."""
        return self.hours * 3600 * self.gpus * SUSTAINED_FLOPS[self.gpu]


BASE_TIME = TrainingTime(steps=100_000, seconds_per_step=0.4, hours=12)
BIG_TIME = TrainingTime(steps=300_000, seconds_per_step=1.0, hours=3.5 * 24)


@dataclass(frozen=True, slots=True)
class Corpus:
    """§5.1, §6.3: a training corpus; the sizes are rounded in the paper."""

    sentences: int
    """Sentences, or sentence pairs."""
    vocabulary: int
    """Tokens in the vocabulary, which source and target share."""


CORPORA: Mapping[str, Corpus] = MappingProxyType(
    {
        "WMT 2014 EN-DE": Corpus(sentences=4_500_000, vocabulary=37_000),
        "WMT 2014 EN-FR": Corpus(sentences=36_000_000, vocabulary=32_000),
        "WSJ": Corpus(sentences=40_000, vocabulary=16_000),
        "WSJ, semi-supervised": Corpus(sentences=17_000_000, vocabulary=32_000),
    }
)


# Table 3 -----------------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True)
class Table3Row:
    """The results in a row of Table 3, on newstest2013, without checkpoint averaging (§6.2)."""

    steps: int
    """Training steps."""
    perplexity: float
    """Perplexity per sub-word ("per-wordpiece" in the paper)."""
    bleu: float
    millions: int
    """Parameters, in millions."""


TABLE_3_RESULTS: Mapping[str, Table3Row] = MappingProxyType(
    {
        "base": Table3Row(100_000, 4.92, 25.8, 65),
        "A1": Table3Row(100_000, 5.29, 24.9, 65),
        "A2": Table3Row(100_000, 5.00, 25.5, 65),
        "A3": Table3Row(100_000, 4.91, 25.8, 65),
        "A4": Table3Row(100_000, 5.01, 25.4, 65),
        "B1": Table3Row(100_000, 5.16, 25.1, 58),
        "B2": Table3Row(100_000, 5.01, 25.4, 60),
        "C1": Table3Row(100_000, 6.11, 23.7, 36),
        "C2": Table3Row(100_000, 5.19, 25.3, 50),
        "C3": Table3Row(100_000, 4.88, 25.5, 80),
        "C4": Table3Row(100_000, 5.75, 24.5, 28),
        "C5": Table3Row(100_000, 4.66, 26.0, 168),
        "C6": Table3Row(100_000, 5.12, 25.4, 53),
        "C7": Table3Row(100_000, 4.75, 26.2, 90),
        "D1": Table3Row(100_000, 5.77, 24.6, 65),
        "D2": Table3Row(100_000, 4.95, 25.5, 65),
        "D3": Table3Row(100_000, 4.67, 25.3, 65),
        "D4": Table3Row(100_000, 5.47, 25.7, 65),
        "E": Table3Row(100_000, 4.92, 25.7, 65),
        "big": Table3Row(300_000, 4.33, 26.4, 213),
    }
)
"""The results of Table 3, in the order of `TABLE_3`; blanks are filled with the values of base."""

TABLE_3_VOCABULARY = 40_960
"""A vocabulary size that gives the parameter count of each row of Table 3 except big. The docstring
of `parameters` has the counts. The authors' code padded the 37,000 entries of §5.1 to this size."""

BIG_VOCABULARY = 36_000
"""A vocabulary size that gives the big row of Table 3 its 213 million parameters."""


def parameters(model: ModelRecipe, vocabulary: int, source_vocabulary: int | None = None) -> int:
    """The number of parameters of a model, from its sizes alone (§3.1 to §3.5).

    `vocabulary` is the size of the target's vocabulary, in entries, and `source_vocabulary` the
    size of the source's, if the sizes differ. In the paper's models, source, target and softmax
    share one embedding matrix (§3.4), the softmax has no bias, and encoder and decoder share one
    table of learned positions. The four projections of an attention and both layers of a
    feed-forward network have biases; a LayerNorm has a gain and a bias.

    This table has, for each row of Table 3, the millions of parameters that the paper prints, the
    millions at a vocabulary of 40,960, and the range of vocabulary sizes at which the number of
    parameters rounds to the printed millions:

        row    printed   at 40,960   vocabulary from - to
        base      65        65.11     39,769 - 41,721     (A) and (D) have the same count
        B1        58        58.02     39,948 - 41,900
        B2        60        60.38     39,237 - 41,190
        C1        36        35.68     40,600 - 42,553
        C2        50        50.40     39,208 - 41,160
        C3        80        79.82     40,330 - 42,282
        C4        28        27.85     39,598 - 43,504
        C5       168       167.94     40,527 - 41,502
        C6        53        52.51     40,932 - 42,884
        C7        90        90.30     39,397 - 41,349
        E       blank       65.27     39,463 - 41,415     306 positions
        big      213       218.30     35,296 - 36,272

    So vocabularies of 40,932 to 41,160 explain all rows except big, which does not fit the others.
    It has 218 million at 40,960, and 214 million at the 37,000 of §5.1. At about 36,500, it has
    213.7 million, which gives 213 if it is truncated and not rounded.
    """
    positions = model.max_positions if model.positions == "learned" else 0
    # Count the rows of the embedding matrices, each with its learned positions, and of the matrix
    # before the softmax. A matrix that is shared counts once.
    rows = (source_vocabulary or vocabulary) + positions
    rows += (vocabulary + positions) * (model.embeddings in ("target", "apart"))
    rows += vocabulary * (model.embeddings in ("inputs", "apart"))
    embeddings = rows * model.d_model + vocabulary * model.output_bias
    if model.family != "transformer":
        return embeddings + family_sizes(model).parameters
    norm = 2 * model.d_model
    attention, feed_forward = _sublayers(model)
    encoder = model.layers * (attention + feed_forward + 2 * norm)
    attention, feed_forward = _sublayers(model.decoder)
    decoder = model.decoder_layers * (2 * attention + feed_forward + 3 * norm)
    last_norms = 2 * norm * (model.norm != "post")
    return embeddings + encoder + decoder + last_norms


def _sublayers(model: ModelRecipe) -> tuple[int, int]:
    """The parameters of one attention and of one feed-forward network, in the sizes of `model`."""
    keys, values = model.heads * model.d_k, model.heads * model.d_v
    attention = (
        2 * (model.d_model + 1) * keys  # W^Q and W^K
        + (model.d_model + 1) * values  # W^V
        + (values + 1) * model.d_model  # W^O
        + keys * (model.score == "additive")
    )
    return attention, (model.d_model + 1) * model.d_ff + (model.d_ff + 1) * model.d_model


# Table 4 -----------------------------------------------------------------------------------------
Regime = Literal["WSJ only, discriminative", "semi-supervised", "multi-task", "generative"]


@dataclass(frozen=True, slots=True)
class Table4Row:
    """A row of Table 4: labelled bracketing F1 on section 23 of the Wall Street Journal."""

    name: str
    training: Regime
    f1: float


TABLE_4: tuple[Table4Row, ...] = (
    Table4Row("Vinyals & Kaiser et al. (2014)", "WSJ only, discriminative", 88.3),
    Table4Row("Petrov et al. (2006)", "WSJ only, discriminative", 90.4),
    Table4Row("Zhu et al. (2013)", "WSJ only, discriminative", 90.4),
    Table4Row("Dyer et al. (2016)", "WSJ only, discriminative", 91.7),
    Table4Row("Transformer (4 layers)", "WSJ only, discriminative", 91.3),
    Table4Row("Zhu et al. (2013)", "semi-supervised", 91.3),
    Table4Row("Huang & Harper (2009)", "semi-supervised", 91.3),
    Table4Row("McClosky et al. (2006)", "semi-supervised", 92.1),
    Table4Row("Vinyals & Kaiser et al. (2014)", "semi-supervised", 92.1),
    Table4Row("Transformer (4 layers)", "semi-supervised", 92.7),
    Table4Row("Luong et al. (2015)", "multi-task", 93.0),
    Table4Row("Dyer et al. (2016)", "generative", 93.3),
)
