"""Sections of a recipe: what each field means, its default, and which values it may have."""

from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

Count = Annotated[int, Field(ge=1, lt=2**31)]
_Fraction = Annotated[float, Field(ge=0.0, lt=1.0)]


class Section(BaseModel):
    """A section of a recipe: immutable, strictly typed, without NaN, infinity or unknown keys."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", strict=True, allow_inf_nan=False, use_attribute_docstrings=True
    )


class ModelRecipe(Section):
    """§3: the architecture. The defaults are the paper's base model."""

    family: Literal["transformer", "recurrent", "convolutional", "dilated"] = "transformer"
    """Kind of model: the paper's, or one that Table 2 compares it with; see `regard.families`."""
    layers: Annotated[int, Field(ge=1, le=1000)] = 6
    """N: identical layers in the encoder."""
    decoder_layers: Annotated[int, Field(ge=1, le=1000)] = 6
    """Identical layers in the decoder; as many as in the encoder if not given, as in the paper."""
    d_model: Annotated[int, Field(ge=2, le=2**15, multiple_of=2)] = 512
    """Width of the embeddings and of every sub-layer's output."""
    d_ff: Count = 2048
    """Inner width of the feed-forward networks."""
    heads: Count = 8
    """h: parallel attention heads."""
    d_k: Count = 64
    """Width of queries and keys in one head; d_model / heads if not given."""
    d_v: Count = 64
    """Width of values in one head; d_model / heads if not given."""
    decoder_heads: Count = 8
    """Heads in the decoder; as many as in the encoder if not given. Where they differ from it, d_k
    and d_v of the decoder are d_model / decoder_heads."""
    decoder_d_ff: Count = 2048
    """Inner width of the decoder's feed-forward networks; that of the encoder if not given."""
    activation: Literal["relu", "swish", "gelu"] = "relu"
    """The function within the feed-forward networks (§3.3): max(0, x) in the paper; or
    x · sigmoid(x), or x · Phi(x), with the error function."""
    norm: Literal["post", "pre", "last"] = "post"
    """Where a layer normalises (§3.1): LayerNorm(x + Sublayer(x)) in the paper; or
    x + Sublayer(LayerNorm(x)), with one more LayerNorm after the last layer of each stack (pre); or
    as in the paper, with that LayerNorm too (last), as PyTorch's nn.Transformer."""
    norm_epsilon: Annotated[float, Field(ge=1e-12, le=0.1)] = 1e-6
    """The number that LayerNorm adds to the variance."""
    embeddings: Literal["shared", "target", "inputs", "apart"] = "shared"
    """Which of the source's embedding, the target's and the layer before the softmax are one matrix
    (§3.4): all, as in the paper; the last two (target); the first two (inputs); or none (apart)."""
    embedding_scale: bool = True
    """Whether embeddings are multiplied by sqrt(d_model) (§3.4), as in the paper."""
    output_bias: bool = False
    """Whether a learned bias is added before the softmax; the paper's parameters have none."""
    dropout: _Fraction = 0.1
    """P_drop: dropout on every sub-layer's output, and on embedding + position."""
    attention_dropout: _Fraction = 0.0
    """Dropout on the attention weights; the paper uses it for parsing only."""
    relu_dropout: _Fraction = 0.0
    """Dropout after the ReLU of the feed-forward networks; none in the paper."""
    positions: Literal["sinusoidal", "halves", "learned"] = "sinusoidal"
    """Positional encoding: §3.5's sinusoids; the same, all sines before all cosines (halves); or
    learned (row E of Table 3)."""
    max_positions: Count = 1024
    """Number of positions of a learned encoding; sinusoids have no limit."""
    initial: Literal["apart", "joined"] = "apart"
    """Glorot limit of the first W^Q, W^K and W^V: that of each matrix apart; or, as in the authors'
    code, that of those with the same input joined as one matrix, smaller by up to sqrt 2."""
    source_end: bool = True
    """Whether the source's </s> is attended to. In some other programs, sources have no </s>."""
    score: Literal["scaled", "dot", "additive"] = "scaled"
    """How well a key fits a query (§3.2.1): their dot product / sqrt(d_k); the dot product; or
    additive attention, w · tanh(q + k). The paper scales."""
    residual: bool = True
    """Residual connections (§3.1): the paper has one around every sub-layer."""
    causal: bool = True
    """The decoder's mask (§3.2.3): without it, training sees the words that it is to predict."""

    neighbourhood: Annotated[int, Field(ge=0, lt=2**31)] = 0
    """r: self-attention sees only positions that are at most r / 2 away (§4); 0 means all. Memory
    and time then grow with the length of a sentence, not with its square."""
    kernel: Annotated[int, Field(ge=2, le=127)] = 3
    """k: positions that a convolution sees, in the convolutional and dilated families only."""

    @property
    def depth(self) -> str:
        """The numbers of layers: 6, or 12+3 where encoder and decoder differ."""
        return "+".join(map(str, dict.fromkeys([self.layers, self.decoder_layers])))

    @property
    def decoder(self) -> Self:
        """This section with the sizes of a decoder layer in the fields of an encoder layer."""
        sizes = {"heads": self.decoder_heads, "d_ff": self.decoder_d_ff}
        if self.decoder_heads != self.heads:
            sizes |= dict.fromkeys(("d_k", "d_v"), max(1, self.d_model // self.decoder_heads))
        return self.model_copy(update=sizes)

    @model_validator(mode="before")
    @classmethod
    def _complete(cls, given: Any) -> Any:
        """Fields that are not given follow from others: widths of heads, sizes of the decoder."""
        if isinstance(given, dict):
            width, heads = given.get("d_model", 512), given.get("heads", 8)
            if isinstance(width, int) and isinstance(heads, int) and heads > 0:
                given = {"d_k": max(1, width // heads), "d_v": max(1, width // heads)} | given
            decoder = {
                "decoder_layers": given.get("layers", 6),
                "decoder_heads": heads,
                "decoder_d_ff": given.get("d_ff", 2048),
            }
            given = decoder | given
        return given

    @model_validator(mode="after")
    def _suits_the_family(self) -> Self:
        """Fields that only a Transformer has are not changed without effect in another family."""
        if self.family == "transformer":
            return self
        for name, field in type(self).model_fields.items():
            value = getattr(self, name)
            if name not in _OF_ALL_FAMILIES | _WIDTHS and value != field.default:
                raise ValueError(
                    f"{name} = {value} is for the transformer, not for family = {self.family}: "
                    "leave it out"
                )
        if self.positions != "sinusoidal" and self.family != "convolutional":
            raise ValueError(
                f"positions = {self.positions}: family = {self.family} reads a sentence in order "
                "and has no positions: leave it out"
            )
        if self.family == "recurrent" and min(self.layers, self.decoder_layers) < 2:
            raise ValueError(
                f"layers = {self.depth}: family = recurrent attends after the first layer of the "
                "decoder, and joins both directions in the second of the encoder: give 2 or more"
            )
        return self


_OF_ALL_FAMILIES = {
    *("family", "layers", "decoder_layers", "d_model", "dropout", "attention_dropout", "kernel"),
    *("positions", "max_positions", "embeddings", "embedding_scale", "output_bias"),
}
_WIDTHS = {
    *("d_ff", "heads", "d_k", "d_v", "decoder_heads", "decoder_d_ff", "relu_dropout", "initial"),
}
"""Fields of a Transformer that a recipe may carry over to another family, which does not use them:
recipes of every size have values of their own."""


class TokenizerRecipe(Section):
    """§5.1: one vocabulary shared by source and target."""

    kind: Literal["bpe", "wordpiece"] = "bpe"
    """Byte-pair encoding (EN-DE) or word pieces (EN-FR); unseen characters fall back to bytes."""
    vocabulary: Annotated[int, Field(ge=300, le=1_000_000)] = 37_000
    """Entries, including the 256 bytes and three special symbols."""


class DataRecipe(Section):
    """§5.1: which sentence pairs are kept, and how they are batched."""

    max_length: Annotated[int, Field(ge=2, lt=2**31)] = 256
    """Pieces of the longest sentence kept for training, on either side, </s> included."""
    max_ratio: Annotated[float, Field(ge=1.0)] = 9.0
    """Largest length ratio of a kept pair, in characters, for pairs over ten characters."""
    deduplicate: bool = False
    """Keep only the first of identical pairs."""
    held_out: Count = 1000
    """Pairs set aside for validation if no validation files are given; at most a tenth."""
    source_tokens: Count = 25_000
    """Source tokens in a batch, including padding."""
    target_tokens: Count = 25_000
    """Target tokens in a batch, including padding."""
    layout: Literal["packed", "grouped"] = "packed"
    """Rows of equal width, packed with pairs; or batches of pairs of similar length (§5.1)."""
    row_length: Annotated[int, Field(ge=8, lt=2**31, multiple_of=8)] = 256
    """Width of a packed row in tokens."""
    subword_dropout: _Fraction = 0.0
    """Probability that a merge of byte-pair encoding is skipped in training, drawn anew in each
    epoch (BPE-dropout, Provilkov et al. 2020); none in the paper."""


BleuTokenizer = Literal["13a", "intl", "zh", "ja-mecab", "ko-mecab", "char", "none"]


class TrainingRecipe(Section):
    """§5.2 to §5.4: duration, learning rate, regularisation, validation and checkpoints."""

    steps: Count = 100_000
    """Optimizer steps in total."""
    minutes: Annotated[float, Field(ge=0, le=1e6)] = 0.0
    """Minutes after which the run ends, preparing and the final model included; 0 means never."""
    rate: Annotated[float, Field(gt=0, le=1000)] = 1.0
    """Factor of the learning rate; 1 is the rate of equation (3)."""
    warmup_steps: Count = 4000
    """Steps over which the learning rate rises linearly."""
    beta1: _Fraction = 0.9
    """Adam's decay of the first moment."""
    beta2: _Fraction = 0.98
    """Adam's decay of the second moment."""
    epsilon: Annotated[float, Field(ge=1e-30)] = 1e-9
    """Adam's epsilon."""
    label_smoothing: _Fraction = 0.1
    """epsilon_ls: the probability spread over the whole vocabulary."""
    consistency: Annotated[float, Field(ge=0, le=100)] = 0.0
    """Weight of the divergence between two passes over each batch, whose dropout differs (R-Drop,
    Wu et al. 2021); 0, as in the paper, means one pass."""
    accumulate: Count = 1
    """Batches whose gradients are summed into one step."""
    arithmetic: Literal["auto", "plain", "whole", "halves", "loops"] = "auto"
    """How the equations are computed: auto is the fastest way, plain by their definitions. The
    others are the ways from which auto chooses on a CPU; see `arithmetic.choose`."""
    precision: Literal["auto", "fp32", "bf16", "int8"] = "auto"
    """Number format: auto is bf16 if the processor has it; weights always have an fp32 copy.

    int8 is like auto, but linear layers multiply in 8 bits: states by weights in the forward pass,
    gradients by weights in the backward pass. It needs an x86 processor with VNNI; on one or two
    cores it is faster than bf16.
    """
    seed: Annotated[int, Field(ge=0, lt=2**63)] = 1
    """Seed of the initialisation, the order of the data, and dropout."""
    log_every: Count = 20
    """Steps between two records of the journal."""
    validate_every: Count = 1000
    """Steps between two validations; the last step is always validated."""
    patience: Annotated[int, Field(ge=0, lt=2**31)] = 0
    """Validations without a lower loss after which training stops early; 0 means never."""
    validate_sentences: Annotated[int, Field(ge=0, lt=2**31)] = 200
    """Sentences decoded for BLEU at each validation; 0 means none."""
    bleu_tokenizer: BleuTokenizer = "13a"
    """sacreBLEU's tokenizer; zh, ja-mecab or ko-mecab for languages whose words need segmenting."""
    save_every: Annotated[int, Field(ge=0, lt=2**31)] = 0
    """Steps between two checkpoints; 0 means that only save_minutes counts."""
    save_minutes: Annotated[float, Field(ge=0)] = 10.0
    """Minutes between two checkpoints; 0 means that only save_every counts."""
    resume_minutes: Annotated[float, Field(ge=0)] = 0.0
    """Minutes between two saves that serve only to continue from, 0 means never. With them, all
    averaged checkpoints are those due by save_every and save_minutes, not that of the last step."""
    keep: Count = 5
    """Number of newest checkpoints that are kept."""
    average: Count = 5
    """Checkpoints averaged into the final model (§6.1: the last 5 for base, 20 for big)."""
    best: Literal["last", "loss", "bleu", "f1"] = "last"
    """Which checkpoints are averaged: the last ones, or those nearest to the best validation, by
    its loss, BLEU or F1. `patience` counts validations by the same figure, by the loss for last."""
    tune: bool = False
    """Whether the search's beam and alpha are chosen on the validation set at the end (§6.1)."""

    @property
    def averages_last(self) -> bool:
        """Whether the checkpoint of the last step is averaged even where none was due."""
        return not self.resume_minutes or self.average == 1

    @property
    def passes(self) -> int:
        """Forward passes over each batch."""
        return 2 if self.consistency else 1

    @model_validator(mode="after")
    def _keeps_what_it_averages(self) -> Self:
        if self.keep < self.average:
            raise ValueError(
                f"keep = {self.keep} is less than average = {self.average}: keep at least as many "
                "checkpoints as are averaged"
            )
        return self
