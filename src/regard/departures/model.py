"""§3: departures from the paper in the model."""

from regard.departures.case import (
    NO_DEPARTURE,
    Compared,
    Departure,
    Finding,
    Judge,
    as_row,
    is_parser,
    unstated,
    unstated_for_parsers,
    values,
)

_WIDTHS = (
    "model.d_model", "model.d_ff", "model.decoder_d_ff", "model.heads", "model.decoder_heads",
    "model.d_k", "model.d_v",
)  # fmt: skip
_EXTRA_DROPOUT = ("model.attention_dropout", "model.relu_dropout")
_POSITIONS = ("model.positions", "model.max_positions")


def _extra_dropout(case: Compared) -> Finding | None:
    changed = as_row(*_EXTRA_DROPOUT).finding(case)
    if changed or not is_parser(case):
        return changed
    return Finding("unstated", here=values(case.recipe, ("model.attention_dropout",)))


def _positions(case: Compared) -> Finding | None:
    """Judge the kind of positional encodings; if they are learned, also judge their number."""
    if case.recipe.model.positions != "learned":
        return as_row("model.positions").finding(case)
    if changed := as_row(*_POSITIONS).finding(case):
        return changed
    return Finding("unstated", here=values(case.recipe, ("model.max_positions",)))


def _family(case: Compared) -> Finding | None:
    """Judge the family and, in the two families that have kernels, the kernel's width."""
    kernels = case.recipe.model.family in ("convolutional", "dilated")
    return as_row("model.family", *["model.kernel"] * kernels).finding(case)


MODEL = (
    Departure(
        name="family",
        section="§1, §3, Table 2",
        quote="a model architecture eschewing recurrence",
        theirs="the same; other models of the same code base were recurrent or convolutional",
        ours='as published; `model.family` may also be `"recurrent"`, `"convolutional"` or '
        '`"dilated"`: models of the kinds of GNMT, ConvS2S and ByteNet; a convolution of the last '
        "two sees `model.kernel` positions",
        why="Table 2 compares the Transformer with such models",
        tests=(
            "tests/families/test_recurrent.py",
            "tests/families/test_convolutional.py",
            "tests/families/test_dilated.py",
        ),
        judge=Judge(_family, ("model.family", "model.kernel")),
    ),
    Departure(
        name="depth",
        section="§3.1",
        quote="a stack of N = 6 identical layers",
        theirs="the same; 6 for parsing as well, where §6.3 says 4",
        ours="`model.layers` and `model.decoder_layers`: 6 and 6, or the numbers of a row of "
        "Table 3",
        why="a model with a deep encoder and a shallow decoder translates faster",
        tests=("tests/test_paper.py",),
        judge=as_row("model.layers", "model.decoder_layers"),
    ),
    Departure(
        name="widths",
        section="§3.2.2, §3.3, Table 3",
        quote="d_k = d_v = d_model/h = 64",
        theirs="the same; d_ff is 8192 in the setting for big EN-FR",
        ours="the widths of a row of Table 3; the encoder and the decoder may differ in heads and "
        "d_ff",
        why="small texts and machines need smaller models; in models of other programs, the two "
        "sides may differ",
        tests=("tests/test_paper.py", "tests/test_transformer.py"),
        judge=as_row(*_WIDTHS),
    ),
    Departure(
        name="score of a query and a key",
        section="§3.2.1",
        quote="We compute the dot products of the query with all keys, divide each by √d_k",
        theirs="the same",
        ours='as published; `model.score` may be `"dot"`, without scaling, or `"additive"`',
        why="`regard claims` measures the effect of the scaling",
        tests=("tests/test_variants.py",),
        judge=as_row("model.score"),
    ),
    Departure(
        name="restricted self-attention",
        section="§4, Table 1",
        quote="self-attention could be restricted to considering only a neighborhood of size r",
        theirs="self-attention over the whole sentence; later code has other restrictions",
        ours="over the whole sentence; `model.neighbourhood` restricts it",
        why="the paper plans to investigate this restriction, and Table 1 lists it",
        tests=("tests/test_neighbourhood.py",),
        judge=as_row("model.neighbourhood"),
    ),
    Departure(
        name="residual connections",
        section="§3.1",
        quote="We employ a residual connection around each of the two sub-layers",
        theirs="the same",
        ours="as published; `model.residual = false` leaves the residual connections out",
        why="`regard claims` measures the effect of the residual connections",
        tests=("tests/test_variants.py",),
        judge=as_row("model.residual"),
    ),
    Departure(
        name="mask of the decoder",
        section="§3.2.3",
        quote="We need to prevent leftward information flow in the decoder",
        theirs="the same",
        ours="as published; `model.causal = false` leaves the mask out in training",
        why="`regard claims` measures the effect of the mask",
        tests=("tests/test_variants.py",),
        judge=as_row("model.causal"),
    ),
    Departure(
        name="end of the source",
        section="§3.1",
        theirs="`</s>` ends the source, and is attended to",
        ours="the same; with `model.source_end = false`, no query attends to this `</s>`",
        why="the authors' code does so; in OpenNMT-py, the source has no `</s>`",
        tests=("tests/test_variants.py",),
        judge=unstated("model.source_end"),
    ),
    Departure(
        name="order of the normalisation",
        section="§3.1",
        quote="LayerNorm(x + Sublayer(x))",
        theirs="the same, and no norm after the last layer; later, a norm before each sub-layer "
        "and one after the last layer",
        ours='as published; `model.norm = "pre"` normalises before each sub-layer and after the '
        'last layer, `"last"` normalises after each sub-layer and again after the last layer',
        why='many models of other programs have these norms; `"pre"` learns without a long warm-up',
        tests=("tests/test_layers.py", "tests/test_variants.py"),
        judge=as_row("model.norm"),
    ),
    Departure(
        name="epsilon of the normalisation",
        section="§3.1",
        theirs="1e-6",
        ours="1e-6, unless `model.norm_epsilon` has another value",
        why="the authors' code has 1e-6; PyTorch and models of other programs have 1e-5",
        tests=("tests/test_layers.py", "tests/test_variants.py"),
        judge=unstated("model.norm_epsilon"),
    ),
    Departure(
        name="function of the feed-forward network",
        section="§3.3",
        quote="FFN(x) = max(0, xW1 + b1)W2 + b2",
        theirs="the same",
        ours='as published; `model.activation` may be `"swish"` or `"gelu"`',
        why="models of other programs have these activation functions",
        tests=("tests/test_layers.py", "tests/test_variants.py"),
        judge=as_row("model.activation"),
    ),
    Departure(
        name="dropout",
        section="§5.4, Table 3",
        quote="For the base model, we use a rate of P_drop = 0.1.",
        theirs="the same, on the outputs of sub-layers and on the sum of embedding and position; "
        "for parsing 0.2 (WSJ) and 0.1 (semi-supervised)",
        ours="as published; for the parsers, as in the authors' code; on a CPU the probability is "
        "rounded to a multiple of 1/65,536",
        why="the paper tuned the parsers' dropout and does not print it",
        tests=("tests/arithmetic/test_equations.py", "tests/test_paper.py"),
        judge=unstated_for_parsers("model.dropout"),
    ),
    Departure(
        name="dropout elsewhere",
        section="§5.4, §6.3",
        quote="the dropout, both attention and residual",
        theirs="for translation 0 on attention weights and after the ReLU, later 0.1 on both; for "
        "parsing, an early file has 0 on attention weights, and a later one has 0.2",
        ours="for translation 0; for the parsers, on attention weights, 0.2 (`wsj`) and 0.1 "
        "(`wsj-semi`), of which 0.1 is a guess",
        why="§6.3 tuned attention dropout for the parsers and does not print it",
        tests=("tests/arithmetic/test_equations.py", "tests/test_paper.py"),
        judge=Judge(_extra_dropout, _EXTRA_DROPOUT),
    ),
    Departure(
        name="dropout of words",
        section="§5.4",
        theirs="none",
        ours="none; `model.word_dropout` replaces whole embeddings by 0 at random, in training",
        why="it is reported to help with small texts; it is off, because no gain in BLEU was "
        "measured here",
        tests=("tests/test_layers.py",),
        judge=as_row("model.word_dropout"),
    ),
    Departure(
        name="initial values",
        section="§3.4",
        theirs="Glorot uniform; the limit is that of one matrix that joins W^Q, W^K and W^V in "
        "self-attention, and W^K and W^V over the encoder's output; embeddings are normal with "
        "standard deviation d_model^-0.5",
        ours='the same in the paper\'s recipes, which have `model.initial = "joined"`; with '
        '`"apart"`, each matrix has the limit of its own shape, which for queries, keys and '
        "values is larger by a factor of up to the square root of 2",
        why='`"apart"` is the default of recipes that are not the paper\'s',
        tests=("tests/test_layers.py", "tests/test_transformer.py"),
        judge=unstated("model.initial"),
    ),
    Departure(
        name="scale of the embeddings",
        section="§3.4",
        quote="In the embedding layers, we multiply those weights by √d_model",
        theirs="at the input, not before the softmax",
        ours="at the input, not before the softmax; `model.embedding_scale = false` leaves the "
        "factor out",
        why="models of other programs have no such factor",
        tests=("tests/test_layers.py", "tests/test_variants.py"),
        judge=as_row("model.embedding_scale"),
    ),
    Departure(
        name="one matrix of embeddings",
        section="§3.4",
        quote="we share the same weight matrix between the two embedding layers and the "
        "pre-softmax linear transformation",
        theirs="the same; in its settings for big EN-FR and for parsing, the pre-softmax matrix "
        "is not shared",
        ours="as published; with other values of `model.embeddings`, two of the three matrices "
        "are shared, or none",
        why="models of other programs share fewer matrices, above all if source and target have "
        "different vocabularies",
        tests=("tests/test_transformer.py", "tests/test_variants.py"),
        judge=as_row("model.embeddings"),
    ),
    Departure(
        name="bias before the softmax",
        section="§3.4, Table 3",
        theirs="none",
        ours="none; `model.output_bias` adds a learned one",
        why="without a bias, the numbers of parameters are those that Table 3 prints; models of "
        "other programs have a bias",
        tests=("tests/test_paper.py", "tests/test_variants.py"),
        judge=unstated("model.output_bias"),
    ),
    Departure(
        name="biases",
        section="§3.2.2, Table 3",
        theirs="the projections have biases",
        ours="the same; the bias of the keys stays 0, because the softmax cancels it, but it is "
        "counted (9,216 parameters of base)",
        why="the formulas have no biases, but with biases the numbers of parameters are those "
        "that Table 3 prints: for 40,960 entries in every row except big, and for 36,000 entries "
        "in big",
        tests=("tests/test_paper.py", "tests/test_transformer.py", "tests/run/test_processes.py"),
        judge=unstated(),
    ),
    Departure(
        name="first and last symbols",
        section="§3.1",
        quote="the output embeddings are offset by one position",
        theirs="a zero vector comes first; a learned vector for the target language is added to "
        "the encoder's input",
        ours="`<s>` begins the target, and `</s>` ends both sides; there is no language vector",
        why="the paper does not say what comes first, and mentions no language vector",
        tests=("tests/data/test_batches.py",),
        judge=unstated(),
    ),
    Departure(
        name="sinusoids",
        section="§3.5",
        quote="PE(pos, 2i) = sin(pos/10000^(2i/d_model))",
        theirs="all sines, then all cosines; exponent i/(d_model/2 − 1)",
        ours='as published: interleaved, exponent 2i/d_model; `model.positions = "halves"` has '
        'all sines first, with the same exponent; with `"words"`, in `small-parse`, a symbol of a '
        "tree has the sinusoids of the number of the next word",
        why="the other exponent would give another function of the position; models of other "
        "programs have all sines first; a parser of few trees learns sooner where in the sentence "
        "it is",
        tests=(
            "tests/test_layers.py",
            "tests/test_variants.py",
            "tests/test_word_positions.py",
        ),
        judge=NO_DEPARTURE,
    ),
    Departure(
        name="positions",
        section="§3.5, Table 3",
        quote="We also experimented with using learned positional embeddings",
        theirs="one learned table for the encoder and one for the decoder, 256 long",
        ours="row E: one table of 306 positions for both sides",
        why="the paper does not print the number; 306 positions are enough for a training "
        "sentence of 256 pieces and for an output that has 50 more",
        tests=("tests/test_paper.py",),
        judge=Judge(_positions, _POSITIONS),
    ),
)
