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
    """Kind of model: the paper's, or one of the kinds that Table 2 compares it with
    (`regard.families`)."""
    layers: Annotated[int, Field(ge=1, le=1000)] = 6
    """N: number of identical layers in the encoder."""
    decoder_layers: Annotated[int, Field(ge=1, le=1000)] = 6
    """Number of identical layers in the decoder. A recipe that sets only `layers` has as many here,
    as in the paper."""
    d_model: Annotated[int, Field(ge=2, le=2**15, multiple_of=2)] = 512
    """Width of the embeddings and of every sub-layer's output."""
    d_ff: Count = 2048
    """Inner width of the feed-forward networks."""
    heads: Count = 8
    """h: number of parallel attention heads."""
    d_k: Count = 64
    """Width of queries and keys in one head; by default d_model / heads, rounded down."""
    d_v: Count = 64
    """Width of values in one head; by default d_model / heads, rounded down."""
    decoder_heads: Count = 8
    """Number of heads in the decoder; by default as many as in the encoder. If the numbers differ,
    d_k and d_v of the decoder are d_model / decoder_heads, rounded down."""
    decoder_d_ff: Count = 2048
    """Inner width of the decoder's feed-forward networks; by default the encoder's."""
    activation: Literal["relu", "swish", "gelu"] = "relu"
    """The function in the feed-forward networks (§3.3). relu: max(0, x), as in the paper. swish:
    x · sigmoid(x). gelu: x · Phi(x), with the error function."""
    norm: Literal["post", "pre", "last"] = "post"
    """Where a layer normalises (§3.1). post: LayerNorm(x + Sublayer(x)), as in the paper. pre:
    x + Sublayer(LayerNorm(x)), and one more LayerNorm after the last layer of each stack. last: as
    post, and one more LayerNorm after each stack, as in PyTorch's nn.Transformer."""
    norm_epsilon: Annotated[float, Field(ge=1e-12, le=0.1)] = 1e-6
    """The number that LayerNorm adds to the variance."""
    embeddings: Literal["shared", "target", "inputs", "apart"] = "shared"
    """Which of three matrices are shared (§3.4): the source's embedding, the target's embedding and
    the layer before the softmax. shared: all three, as in the paper. target: the last two. inputs:
    the first two. apart: none."""
    embedding_scale: bool = True
    """Whether embeddings are multiplied by sqrt(d_model) (§3.4), as in the paper."""
    output_bias: bool = False
    """Whether a learned bias is added before the softmax; the paper's models have none."""
    dropout: _Fraction = 0.1
    """P_drop: dropout on every sub-layer's output, and on embedding + position."""
    attention_dropout: _Fraction = 0.0
    """Dropout on the attention weights; the paper uses it only for parsing."""
    relu_dropout: _Fraction = 0.0
    """Dropout after the activation in the feed-forward networks; none in the paper."""
    word_dropout: _Fraction = 0.0
    """Dropout of whole sub-words: the probability that a sub-word's embedding is 0 in training, in
    source and target, before its position is added; none in the paper."""
    positions: Literal["sinusoidal", "halves", "learned", "words"] = "sinusoidal"
    """Positional encoding. sinusoidal: the sinusoids of §3.5. halves: the same numbers, all sines
    before all cosines. learned: as in row E of Table 3. words: for a parser, sinusoids of positions
    that are counted in words (`regard.word_positions`)."""
    max_positions: Count = 1024
    """Number of learned positions, which no sentence may exceed; sinusoids have no limit."""
    initial: Literal["apart", "joined"] = "apart"
    """The Glorot limit of the initial W^Q, W^K and W^V. apart: the limit of each single matrix.
    joined: as in the authors' code, the limit of one matrix that joins the matrices with the same
    input; in the paper's models, this limit is smaller by a factor of up to sqrt(2)."""
    source_end: bool = True
    """Whether the source's </s> is attended to. In some other programs, sources have no </s>."""
    score: Literal["scaled", "dot", "additive"] = "scaled"
    """The score of a query and a key (§3.2.1). scaled: their dot product / sqrt(d_k), as in the
    paper. dot: their dot product. additive: additive attention, w · tanh(q + k)."""
    residual: bool = True
    """Whether there is a residual connection around every sub-layer, as in the paper (§3.1)."""
    causal: bool = True
    """Whether the decoder's self-attention is masked (§3.2.3). Without the mask, training sees the
    words that it should predict."""

    neighbourhood: Annotated[int, Field(ge=0, lt=2**31)] = 0
    """r: self-attention sees only positions that are at most r / 2 away (§4), so that memory and
    time grow with the length of a sentence, not with its square. 0: it sees all positions."""
    kernel: Annotated[int, Field(ge=2, le=127)] = 3
    """k: number of positions that a convolution sees, only in the convolutional and dilated
    families."""

    @property
    def depth(self) -> str:
        """The numbers of layers as text: 6, or 12+3 if encoder and decoder differ."""
        return "+".join(map(str, dict.fromkeys([self.layers, self.decoder_layers])))

    @property
    def decoder(self) -> Self:
        """A copy of this section in which heads, d_ff, d_k and d_v have the decoder's values."""
        sizes = {"heads": self.decoder_heads, "d_ff": self.decoder_d_ff}
        if self.decoder_heads != self.heads:
            sizes |= dict.fromkeys(("d_k", "d_v"), max(1, self.d_model // self.decoder_heads))
        return self.model_copy(update=sizes)

    @model_validator(mode="before")
    @classmethod
    def _complete(cls, given: Any) -> Any:
        """Fill in missing fields.

        d_k and d_v become d_model / heads, rounded down. The decoder gets the sizes of the encoder.
        """
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
        """Raise ValueError if a family other than the Transformer has settings that it cannot use.

        The fields in `_IGNORED` may have any value.
        """
        if self.family == "transformer":
            return self
        if self.positions == "words":
            raise ValueError('positions = "words" is for the transformer: leave it out')
        for name, field in type(self).model_fields.items():
            value = getattr(self, name)
            if name not in _OF_ALL_FAMILIES | _IGNORED and value != field.default:
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
    *("family", "layers", "decoder_layers", "d_model", "kernel"),
    *("dropout", "attention_dropout", "word_dropout"),
    *("positions", "max_positions", "embeddings", "embedding_scale", "output_bias"),
}
_IGNORED = {
    *("d_ff", "heads", "d_k", "d_v", "decoder_heads", "decoder_d_ff", "relu_dropout", "initial"),
}
"""Fields that the other families ignore, whatever their values, so that a recipe for a Transformer
of any size can be changed to another family."""


class TokenizerRecipe(Section):
    """§5.1: one vocabulary shared by source and target."""

    kind: Literal["bpe", "wordpiece"] = "bpe"
    """bpe: byte-pair encoding (EN-DE in the paper). wordpiece: word pieces (EN-FR). Unseen
    characters are encoded as bytes."""
    vocabulary: Annotated[int, Field(ge=300, le=1_000_000)] = 37_000
    """The most entries, including the bytes, three special symbols and the symbols of trees."""


class DataRecipe(Section):
    """§5.1: which sentence pairs are kept, and how they are batched."""

    max_length: Annotated[int, Field(ge=2, lt=2**31)] = 256
    """A pair is left out of training if a side has more pieces than this, </s> included."""
    max_ratio: Annotated[float, Field(ge=1.0)] = 9.0
    """A pair of the training text is left out if a side has more than ten characters and is more
    than this many times as long as the other side."""
    share: Annotated[float, Field(gt=0, le=1)] = 1.0
    """For a translator: the probability with which each pair of the training text is drawn; other
    pairs are not used. Equal pairs are drawn together. With the same seed, a larger share has all
    pairs of a smaller one. The paper uses the whole text."""
    deduplicate: bool = False
    """Whether only the first of identical pairs is kept; with --mix, the first in each file."""
    held_out: Count = 1000
    """Number of pairs or trees held out for validation if no validation files are given; at most a
    tenth of all different pairs, or of all gold trees. They are drawn at random; each different
    pair, or each tree, has the same chance."""
    recombined: Annotated[int, Field(ge=0, lt=2**31)] = 0
    """For a parser without silver trees: the most new trees to make by exchanging phrases between
    gold trees. Each gold tree gives at most 20 new trees; the paper makes none."""
    source_tokens: Count = 25_000
    """The most source tokens in a batch, including padding."""
    target_tokens: Count = 25_000
    """The most target tokens in a batch, including padding."""
    layout: Literal["packed", "grouped"] = "packed"
    """packed: rows have equal width, and may hold several pairs. grouped: a batch has rows of
    similar length (§5.1); a row holds one pair or, in a Transformer, up to four if one would leave
    much padding."""
    row_length: Annotated[int, Field(ge=8, lt=2**31, multiple_of=8)] = 256
    """Width of a packed row in tokens."""
    subword_dropout: _Fraction = 0.0
    """The probability that a merge of byte-pair encoding is skipped, at random in each epoch
    (BPE-dropout, Provilkov et al. 2020); the paper skips none."""


BleuTokenizer = Literal["13a", "intl", "zh", "ja-mecab", "ko-mecab", "char", "none"]


class TrainingRecipe(Section):
    """§5.2 to §5.4 and §6.1: duration, optimizer, label smoothing, validation and checkpoints.

    Dropout (§5.4) is in the section [model].
    """

    steps: Count = 100_000
    """The number of optimizer steps."""
    minutes: Annotated[float, Field(ge=0, le=1e6)] = 0.0
    """The run ends after this many minutes, which include preparing data and the final model; 0
    means no limit."""
    rate: Annotated[float, Field(gt=0, le=1000)] = 1.0
    """Factor of the learning rate; 1 gives the rate of equation (3)."""
    warmup_steps: Count = 4000
    """The number of steps over which the learning rate rises linearly."""
    cooldown: _Fraction = 0.0
    """The fraction of the steps, at the end of the run, in which a factor also multiplies the
    learning rate; none in the paper. The factor falls in a straight line from 1 towards 0. If
    `minutes` limit the run, the number of these steps is planned once, before the cooldown begins,
    from the mean time of earlier steps. The run ends with the cooldown, or earlier if the time is
    over. `patience` may end a run before its cooldown."""
    first_embedding: Literal["random", "pairs"] = "random"
    """The embedding of a new run. random: each number is drawn. pairs: sub-words that occur in the
    same pairs of sentences, such as a word and its translation, begin with similar vectors (latent
    semantic indexing across languages, Littman et al. 1998). A run begun with --from has the other
    model's embedding."""
    optimizer: Literal["adam", "muon"] = "adam"
    """adam: as in the paper. muon: the matrices inside the layers learn by Muon (Jordan et al.
    2024), all other parameters by Adam, with the same rate."""
    weight_decay: Annotated[float, Field(ge=0, le=10)] = 0.0
    """Muon also multiplies its matrices by 1 - learning rate x weight_decay at each update
    (decoupled weight decay, Loshchilov and Hutter 2019). Adam has no decay, as in the paper."""
    beta1: _Fraction = 0.9
    """Adam's decay of the first moment."""
    beta2: _Fraction = 0.98
    """Adam's decay of the second moment."""
    epsilon: Annotated[float, Field(ge=1e-30)] = 1e-9
    """Adam's epsilon."""
    label_smoothing: _Fraction = 0.1
    """epsilon_ls: the probability that is spread over the whole vocabulary."""
    consistency: Annotated[float, Field(ge=0, le=100)] = 0.0
    """Weight of the divergence between two passes over each batch, which have different dropout
    (R-Drop, Wu et al. 2021). 0 means one pass, as in the Transformer's paper."""
    accumulate: Count = 1
    """The number of batches whose gradients are summed for one step."""
    arithmetic: Literal["auto", "plain", "whole", "halves", "loops"] = "auto"
    """How the equations are computed. auto: in the fastest way for the device and the size of the
    batch (`arithmetic.choose`). plain: by their definitions, on any device. Three ways are for a
    CPU. whole: by PyTorch's operations, on all cores. halves: two halves of a batch at the same
    time, each on half of the cores. loops: with compiled loops, on one or two cores."""
    precision: Literal["auto", "fp32", "bf16", "int8"] = "auto"
    """The number format of training. auto: bf16 if the CPU or GPU has it, otherwise fp32. There is
    always a copy of the weights in fp32.

    int8 is like auto, but linear layers multiply in 8 bits: states by weights in the forward pass,
    gradients by weights in the backward pass. It needs an x86 processor with VNNI; on one or two
    cores it is faster than bf16.
    """
    seed: Annotated[int, Field(ge=0, lt=2**63)] = 1
    """Seed of the initialisation, the order of the data, and dropout. When data is prepared, the
    seed also decides which pairs are drawn (`share`, validation, sub-words), and the new trees."""
    log_every: Count = 20
    """Steps from one logged step to the next. The first step is also logged, and so is the last,
    unless `patience` ends the run."""
    validate_every: Count = 1000
    """Steps from one validation to the next; the last step is always validated."""
    patience: Annotated[int, Field(ge=0, lt=2**31)] = 0
    """Training stops early after this many validations in a row without a new lowest loss or, if
    `best` is bleu or f1, without a new highest BLEU or F1. 0 means that training never stops
    early."""
    validate_sentences: Annotated[int, Field(ge=0, lt=2**31)] = 200
    """The number of sentences decoded for BLEU or F1 at each validation; 0 means none."""
    bleu_tokenizer: BleuTokenizer = "13a"
    """sacreBLEU's tokenizer. zh and ja-mecab are for languages without blanks between words,
    ko-mecab is for Korean, whose particles are joined to words; char makes a word of each
    character."""
    save_every: Annotated[int, Field(ge=0, lt=2**31)] = 0
    """Steps from one checkpoint to the next; with 0, only save_minutes counts."""
    save_minutes: Annotated[float, Field(ge=0)] = 10.0
    """Minutes from one checkpoint to the next; with 0, only save_every counts."""
    resume_minutes: Annotated[float, Field(ge=0)] = 0.0
    """Minutes between saves that serve only to resume the run; 0 means no such saves. With such
    saves, the final model averages only checkpoints that save_every or save_minutes asked for. If
    there are too few such checkpoints, or `average` is 1, the final model also uses other
    checkpoints, for example that of the last step."""
    keep: Count = 5
    """The number of newest checkpoints that are kept. Older ones are removed, except those that
    `best` may choose for the average."""
    average: Count = 5
    """The most checkpoints that are averaged into the final model (§6.1: the last 5 for base, 20
    for big). Fewer are averaged if fewer were saved, or if `tune` chooses fewer."""
    best: Literal["last", "loss", "bleu", "f1"] = "last"
    """Which checkpoints are averaged. last: the last ones. loss, bleu or f1: those whose steps are
    nearest to the step of the validation with the best loss, BLEU or F1. `patience` compares
    validations by the same measure or, with last, by the loss."""
    tune: bool = False
    """Whether beam, alpha and the number of averaged checkpoints, at most `average`, are chosen on
    the validation set at the end of training (§6.1)."""

    @property
    def averages_last(self) -> bool:
        """Whether the last step's checkpoint may be averaged even if no save is due then."""
        return not self.resume_minutes or self.average == 1

    @property
    def passes(self) -> int:
        """The number of forward passes over each batch."""
        return 2 if self.consistency else 1

    @model_validator(mode="after")
    def _keeps_what_it_averages(self) -> Self:
        if self.keep < self.average:
            raise ValueError(
                f"keep = {self.keep} is less than average = {self.average}: keep at least as many "
                "checkpoints as are averaged"
            )
        return self
