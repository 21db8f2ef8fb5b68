"""`regard import`: turns models of other programs into models of regard, with a certificate."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from regard.cli.console import note
from regard.cli.options import with_groups
from regard.cli.preparing import ended_by_sigterm

if TYPE_CHECKING:
    from regard.exchange.foreign import Foreign
    from regard.exchange.texts import Texts

_OutOption = Annotated[Path, typer.Option("--out", help="The model directory to make.")]
_VocabOption = Annotated[
    list[Path] | None,
    typer.Option("--vocab", help="Vocabulary file; twice for source and target."),
]


class _Cutting(NamedTuple):
    """Options that say how the other program divides text into the pieces of the vocabulary."""

    spm: Annotated[
        list[Path] | None,
        typer.Option(help="SentencePiece model; twice for source and target."),
    ] = None
    codes: Annotated[
        list[Path] | None,
        typer.Option(help="Merges of subword-nmt; twice for source and target."),
    ] = None
    language: Annotated[
        list[str] | None,
        typer.Option(help="Divide words by Moses' rules for a language: en; twice for both sides."),
    ] = None

    def texts(self, vocab: list[Path] | None = None) -> "Texts":
        """A description of the tokenizer, from these options and the vocabulary files `vocab`."""
        from regard.exchange.texts import Texts

        return Texts(vocab or (), self.spm or (), self.codes or (), self.language or ())


_EmbeddingHelp = "The name of the {}'s embedding in the file."

importing = typer.Typer(
    help="Convert a model of another program into a model directory, exactly or not at all.",
    rich_markup_mode="markdown",
)


@importing.command()
def hf(
    directory: Annotated[Path, typer.Argument(help="A directory of Hugging Face's MarianMTModel.")],
    out: _OutOption,
) -> None:
    """Import a MarianMT model, such as those of OPUS-MT.

    The directory has config.json, model.safetensors or pytorch_model.bin, source.spm, target.spm,
    vocab.json, and perhaps generation_config.json and tokenizer_config.json. Code in a pickled file
    is never run. If `transformers` is installed, both models are run and compared.

    Examples:

    - `regard import hf opus-mt-en-de --out models/opus`
    - `regard info models/opus`
    """
    from regard.exchange.from_hf import read_hf

    _make(out, lambda: read_hf(directory))


@importing.command()
@with_groups
def marian(
    *,
    file: Annotated[Path, typer.Argument(help="A .npz file of marian-nmt.")],
    out: _OutOption,
    vocab: _VocabOption = None,
    cutting: _Cutting,
) -> None:
    """Import a model of marian-nmt; its configuration is in the file.

    The sinusoidal positions of marian-nmt have another exponent than the paper's, so they become a
    table of 1,024 learned positions.

    Examples:

    - `regard import marian m.npz --vocab v.yml --spm source.spm --spm target.spm --out models/m`
    - `regard import marian model.npz --spm vocab.spm --out models/m`
    """
    from regard.exchange.from_marian import read_marian

    _make(out, lambda: read_marian(file, cutting.texts(vocab)))


@importing.command()
@with_groups
def joeynmt(
    *,
    directory: Annotated[Path, typer.Argument(help="A model directory of JoeyNMT.")],
    out: _OutOption,
    vocab: _VocabOption = None,
    cutting: _Cutting,
) -> None:
    """Import a Transformer of JoeyNMT: config.yaml, best.ckpt, src_vocab.txt, trg_vocab.txt.

    Examples:

    - `regard import joeynmt models/transformer_iwslt --out models/iwslt`
    """
    from regard.exchange.from_joeynmt import read_joeynmt

    _make(out, lambda: read_joeynmt(directory, cutting.texts(vocab)))


@importing.command()
@with_groups
def opennmt(
    *,
    file: Annotated[Path, typer.Argument(help="A .pt file of OpenNMT-py 3.")],
    out: _OutOption,
    cutting: _Cutting,
) -> None:
    """Import a Transformer of OpenNMT-py; its vocabularies are in the file.

    Examples:

    - `regard import opennmt model_step_100000.pt --spm sentencepiece.model --out models/m`
    """
    from regard.exchange.from_opennmt import read_opennmt

    _make(out, lambda: read_opennmt(file, cutting.texts()))


@importing.command("torch")
@with_groups
def state_dict(
    *,
    file: Annotated[Path, typer.Argument(help="A state dict: torch.save, or .safetensors.")],
    out: _OutOption,
    heads: Annotated[int, typer.Option(min=1, help="Attention heads (nhead).")],
    vocab: _VocabOption = None,
    cutting: _Cutting,
    activation: Annotated[str, typer.Option(help="relu or gelu.")] = "relu",
    norm_first: Annotated[
        bool, typer.Option("--norm-first", help="It was made with norm_first=True.")
    ] = False,
    norm_epsilon: Annotated[float, typer.Option(help="layer_norm_eps.")] = 1e-5,
    scale: Annotated[
        bool, typer.Option("--scale/--no-scale", help="Embeddings are multiplied by √d_model.")
    ] = True,
    source_embedding: Annotated[
        str, typer.Option(metavar="NAME", help=_EmbeddingHelp.format("source"))
    ] = "",
    target_embedding: Annotated[
        str, typer.Option(metavar="NAME", help=_EmbeddingHelp.format("target"))
    ] = "",
    generator: Annotated[
        str, typer.Option(metavar="NAME", help="The name of the layer before the softmax.")
    ] = "",
    positions: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="The name of a stored table of positions; sinusoidal or halves if none is stored.",
        ),
    ] = "",
    pad: Annotated[str, typer.Option(help="The padding's name in the vocabulary.")] = "<pad>",
    begin: Annotated[str, typer.Option(help="The piece with which targets begin.")] = "<s>",
    end: Annotated[str, typer.Option(help="The piece that ends source and target.")] = "</s>",
) -> None:
    """Import a state dict of nn.Transformer, with embeddings and a layer before the softmax.

    The options tell what the weights do not show. Sources must end with the piece that --end names,
    and have no other special piece.

    Examples:

    - `regard import torch model.pt --heads 8 --vocab vocab.txt --spm cut.model --out models/m`
    """
    from regard.exchange.from_torch import Program, read_torch

    program = Program(
        heads, activation, norm_first, scale, norm_epsilon, source_embedding, target_embedding,
        generator, positions, pad, begin, end,
    )  # fmt: skip
    _make(out, lambda: read_torch(file, program, cutting.texts(vocab)))


def _make(out: Path, read: "Callable[[], Foreign]") -> None:
    """Read a model by calling `read`, write this model to `out`, and print its certificate."""
    from regard.cli.info import certificate_rows, print_rows
    from regard.exchange.certified import refuse_existing
    from regard.exchange.importing import write_imported
    from regard.files.whole import refuse_unwritable

    refuse_existing(out)
    refuse_unwritable(out.absolute().parent)
    foreign = read()
    note(f"{foreign.where}: read; the model is written, and compared if the other program is here")
    with ended_by_sigterm():
        certificate = write_imported(out, foreign)
    typer.echo(f"{out}: a model of regard")
    print_rows(certificate_rows(certificate.model_dump()))
