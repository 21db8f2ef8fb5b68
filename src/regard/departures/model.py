"""§3: departures from the paper in the model."""

from regard.departures.case import Compared, Departure, Finding, as_row, never, unstated, values

_PARTS = ("model.layers", "model.decoder_layers")
_WIDTHS = (
    "model.d_model", "model.d_ff", "model.decoder_d_ff", "model.heads", "model.decoder_heads",
    "model.d_k", "model.d_v",
)  # fmt: skip
_EXTRA_DROPOUT = ("model.attention_dropout", "model.relu_dropout")
_POSITIONS = ("model.positions", "model.max_positions")


def _dropout(case: Compared) -> Finding | None:
    """The paper does not print the parsers' dropout, which it tuned."""
    changed = as_row("model.dropout")(case)
    if changed or case.printed.task.output == "text":
        return changed
    return Finding("unstated", here=values(case.recipe, ("model.dropout",)))


def _extra_dropout(case: Compared) -> Finding | None:
    changed = as_row(*_EXTRA_DROPOUT)(case)
    if changed or case.printed.task.output == "text":
        return changed
    return Finding("unstated", here=values(case.recipe, ("model.attention_dropout",)))


def _positions(case: Compared) -> Finding | None:
    """Sinusoids have no limit, so only a learned table has a length."""
    if case.recipe.model.positions != "learned":
        return as_row("model.positions")(case)
    if changed := as_row(*_POSITIONS)(case):
        return changed
    return Finding("unstated", here=values(case.recipe, ("model.max_positions",)))


def _family(case: Compared) -> Finding | None:
    """Only two families have kernels."""
    kernels = case.recipe.model.family in ("convolutional", "dilated")
    return as_row("model.family", *["model.kernel"] * kernels)(case)


MODEL = (
    Departure(
        name="family",
        section="§1, §3, Table 2",
        quote="a model architecture eschewing recurrence",
        theirs="the same; other models of the same code base were recurrent or convolutional",
        ours='as published; `model.family` may be `"recurrent"`, `"convolutional"` or `"dilated"`, '
        "of the kinds of GNMT, ConvS2S and ByteNet, with kernels of `model.kernel`",
        why="Table 2 compares with them",
        tests=(
            "tests/families/test_recurrent.py",
            "tests/families/test_convolutional.py",
            "tests/families/test_dilated.py",
        ),
        judge=_family,
        fields=("model.family", "model.kernel"),
    ),
    Departure(
        name="depth",
        section="§3.1",
        quote="a stack of N = 6 identical layers",
        theirs="the same; 6 for parsing as well, where §6.3 says 4",
        ours="`model.layers`, `model.decoder_layers`: 6 and 6, or as a row of Table 3 says",
        why="a deeper encoder with a shallow decoder translates faster",
        tests=("tests/test_paper.py",),
        judge=as_row(*_PARTS),
        fields=_PARTS,
    ),
    Departure(
        name="widths",
        section="§3.2.2, §3.3, Table 3",
        quote="d_k = d_v = d_model/h = 64",
        theirs="the same; for big EN-FR its d_ff is 8192",
        ours="the widths of a row of Table 3; encoder and decoder may differ in heads and d_ff",
        why="small texts and machines need smaller models; models of other programs differ so",
        tests=("tests/test_paper.py", "tests/test_transformer.py"),
        judge=as_row(*_WIDTHS),
        fields=_WIDTHS,
    ),
    Departure(
        name="score of a query and a key",
        section="§3.2.1",
        quote="We compute the dot products of the query with all keys, divide each by √d_k",
        theirs="the same",
        ours='as published; `model.score` may be `"dot"`, without scaling, or `"additive"`',
        why="`regard claims` measures what scaling is for",
        tests=("tests/test_variants.py",),
        judge=as_row("model.score"),
        fields=("model.score",),
    ),
    Departure(
        name="restricted self-attention",
        section="§4, Table 1",
        quote="self-attention could be restricted to considering only a neighborhood of size r",
        theirs="self-attention over the whole sentence; later code has other restrictions",
        ours="over the whole sentence; `model.neighbourhood` restricts it",
        why="the paper plans to investigate it, and Table 1 compares with it",
        tests=("tests/test_neighbourhood.py",),
        judge=as_row("model.neighbourhood"),
        fields=("model.neighbourhood",),
    ),
    Departure(
        name="residual connections",
        section="§3.1",
        quote="We employ a residual connection around each of the two sub-layers",
        theirs="the same",
        ours="as published; `model.residual = false` leaves them out",
        why="`regard claims` measures what they are for",
        tests=("tests/test_variants.py",),
        judge=as_row("model.residual"),
        fields=("model.residual",),
    ),
    Departure(
        name="mask of the decoder",
        section="§3.2.3",
        quote="We need to prevent leftward information flow in the decoder",
        theirs="the same",
        ours="as published; `model.causal = false` leaves it out in training",
        why="`regard claims` measures what it is for",
        tests=("tests/test_variants.py",),
        judge=as_row("model.causal"),
        fields=("model.causal",),
    ),
    Departure(
        name="end of the source",
        section="§3.1",
        quote="",
        theirs="</s> ends the source, and is attended to",
        ours="the same; by `model.source_end = false` nothing attends to it",
        why="as the authors' code; sources of OpenNMT-py do not end in one",
        tests=("tests/test_variants.py",),
        judge=unstated("model.source_end"),
        fields=("model.source_end",),
    ),
    Departure(
        name="order of the normalisation",
        section="§3.1",
        quote="LayerNorm(x + Sublayer(x))",
        theirs="the same, no norm after the last layer; later a norm before each sub-layer and one "
        "after the last layer",
        ours='as published; `model.norm = "pre"` normalises before each sub-layer and after the '
        'last layer, `"last"` after each and after the last layer',
        why="many models of other programs do, to learn without a long warm-up",
        tests=("tests/test_layers.py", "tests/test_variants.py"),
        judge=as_row("model.norm"),
        fields=("model.norm",),
    ),
    Departure(
        name="epsilon of the normalisation",
        section="§3.1",
        quote="",
        theirs="1e-6",
        ours="1e-6, unless `model.norm_epsilon` says otherwise",
        why="as the authors' code; PyTorch and models of other programs have 1e-5",
        tests=("tests/test_layers.py", "tests/test_variants.py"),
        judge=unstated("model.norm_epsilon"),
        fields=("model.norm_epsilon",),
    ),
    Departure(
        name="function of the feed-forward network",
        section="§3.3",
        quote="FFN(x) = max(0, xW1 + b1)W2 + b2",
        theirs="the same",
        ours='as published; `model.activation` may be `"swish"` or `"gelu"`',
        why="models of other programs have them",
        tests=("tests/test_layers.py", "tests/test_variants.py"),
        judge=as_row("model.activation"),
        fields=("model.activation",),
    ),
    Departure(
        name="dropout",
        section="§5.4, Table 3",
        quote="For the base model, we use a rate of P_drop = 0.1.",
        theirs="the same, on the outputs of sub-layers and on embedding + position; WSJ 0.2, "
        "semi-supervised 0.1",
        ours="as published, and as the authors' code for the parsers; on a CPU the probability is "
        "rounded to 1/65,536",
        why="the paper tuned the parsers' dropout and does not print it",
        tests=("tests/arithmetic/test_equations.py", "tests/test_paper.py"),
        judge=_dropout,
        fields=("model.dropout",),
    ),
    Departure(
        name="dropout elsewhere",
        section="§5.4, §6.3",
        quote="the dropout, both attention and residual",
        theirs="0 on attention weights and after the ReLU for translation, later 0.1 for both; for "
        "parsing an early file has none on attention weights, a later one has 0.2",
        ours="0 for translation; on attention weights 0.2 for `wsj` and 0.1 for `wsj-semi`, of "
        "which the second is a guess",
        why="§6.3 tuned attention dropout for the parsers and does not print it",
        tests=("tests/arithmetic/test_equations.py", "tests/test_paper.py"),
        judge=_extra_dropout,
        fields=_EXTRA_DROPOUT,
    ),
    Departure(
        name="initial values",
        section="§3.4",
        quote="",
        theirs="Glorot uniform, with the limit of one matrix for W^Q, W^K and W^V of "
        "self-attention, and for W^K and W^V over the encoder's output; embeddings normal with "
        "standard deviation d_model^-0.5",
        ours="as the authors' code by the paper's recipes, which have "
        '`model.initial = "joined"`; `"apart"` has limits of queries, keys and values that are '
        "larger, by up to the square root of 2",
        why="without a recipe of the paper, a matrix has the limit of its own shape",
        tests=("tests/test_layers.py", "tests/test_transformer.py"),
        judge=unstated("model.initial"),
        fields=("model.initial",),
    ),
    Departure(
        name="scale of the embeddings",
        section="§3.4",
        quote="In the embedding layers, we multiply those weights by √d_model",
        theirs="at the input, not before the softmax",
        ours="at the input, not before the softmax; `model.embedding_scale = false` leaves it out",
        why="models of other programs have no such factor",
        tests=("tests/test_layers.py", "tests/test_variants.py"),
        judge=as_row("model.embedding_scale"),
        fields=("model.embedding_scale",),
    ),
    Departure(
        name="one matrix of embeddings",
        section="§3.4",
        quote="we share the same weight matrix between the two embedding layers and the "
        "pre-softmax linear transformation",
        theirs="the same; its settings for big EN-FR and for parsing do not share the last one",
        ours="as published; `model.embeddings` may share two of the three, or none",
        why="models of other programs do, the more if source and target differ in vocabulary",
        tests=("tests/test_transformer.py", "tests/test_variants.py"),
        judge=as_row("model.embeddings"),
        fields=("model.embeddings",),
    ),
    Departure(
        name="bias before the softmax",
        section="§3.4, Table 3",
        quote="",
        theirs="none",
        ours="none; `model.output_bias` adds a learned one",
        why="the parameters of Table 3 come out as printed without it; models of other programs "
        "have one",
        tests=("tests/test_paper.py", "tests/test_variants.py"),
        judge=unstated("model.output_bias"),
        fields=("model.output_bias",),
    ),
    Departure(
        name="biases",
        section="§3.2.2, Table 3",
        quote="",
        theirs="biases in the projections",
        ours="the same; the bias of the keys stays 0, because the softmax cancels it, and is "
        "counted all the same (9,216 parameters of base)",
        why="the formulas have none, but with them the parameters of Table 3 come out as printed: "
        "at 40,960 entries in every row except big, which fits 36,000",
        tests=("tests/test_paper.py", "tests/test_transformer.py", "tests/run/test_processes.py"),
        judge=unstated(),
    ),
    Departure(
        name="first and last symbols",
        section="§3.1",
        quote="the output embeddings are offset by one position",
        theirs="a zero vector comes first; a learned vector for the target language is added to "
        "the encoder's input",
        ours="`<s>` begins the target, `</s>` ends both sides; no language vector",
        why="the paper does not say what comes first, and mentions no such vector",
        tests=("tests/data/test_batches.py",),
        judge=unstated(),
    ),
    Departure(
        name="sinusoids",
        section="§3.5",
        quote="PE(pos, 2i) = sin(pos/10000^(2i/d_model))",
        theirs="all sines, then all cosines; exponent i/(d_model/2 − 1)",
        ours="as published: interleaved, exponent 2i/d_model; "
        '`model.positions = "halves"` has all sines first, with the same exponent; `"words"`, in '
        "`small-parse`, has the sinusoids of the number of the word that comes next",
        why="the other exponent is another function of the position; the other order is that of "
        "models of other programs; a parser of few trees learns sooner where it is in the sentence",
        tests=(
            "tests/test_layers.py",
            "tests/test_variants.py",
            "tests/test_word_positions.py",
        ),
        judge=never,
    ),
    Departure(
        name="positions",
        section="§3.5, Table 3",
        quote="We also experimented with using learned positional embeddings",
        theirs="one learned table for the encoder and one for the decoder, 256 long",
        ours="row E: one table of 306 positions for both sides",
        why="the paper does not print how many; 306 are enough for a training sentence and the 50 "
        "more that its translation may have",
        tests=("tests/test_paper.py",),
        judge=_positions,
        fields=_POSITIONS,
    ),
)
