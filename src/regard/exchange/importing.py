"""Write an imported model as a model directory, together with its certificate."""

from pathlib import Path

from regard import __version__
from regard.exchange.certificate import Certificate, certify, unproved
from regard.exchange.certified import write_certified
from regard.exchange.foreign import Foreign, NotRunError
from regard.exchange.sides import OurSide
from regard.run.model_directory import open_model, write_model


def write_imported(out: Path, foreign: Foreign) -> Certificate:
    """Make the model directory `out`, and return its certificate.

    The written model is opened. If the foreign model can be run here, both models are compared.
    Raises ModelError if the written model cannot be opened, or if `certify` refuses the conversion,
    for example because logits differ by more than `TOLERANCE` allows. Raises RegardError if `out`
    cannot be written, or exists and is not an empty directory. After an error, nothing that was
    written is left behind.
    """
    about = {
        "imported": {
            "format": foreign.format,
            "from": foreign.where.resolve().name,
            "files": foreign.files,
            "regard": __version__,
        },
        "tokenizer_fingerprint": foreign.tokenizer.fingerprint,
    }

    def fill(folder: Path) -> None:
        write_model(folder, foreign.recipe, foreign.tokenizer, foreign.weights, about)

    return write_certified(out, fill, lambda folder: _proved(folder, foreign), about)


def _proved(folder: Path, foreign: Foreign) -> Certificate:
    """Compare the model in `folder` with the foreign model, and return the certificate."""
    model, conversion = open_model(folder), f"{foreign.format} to regard"
    search = model.recipe.search
    # `transformers` lacks GNMT's length penalty (§6.1). If the recipe has this penalty, both models
    # search without a penalty: alpha = 0.
    alpha = search.alpha if search.penalty == "length" else 0.0
    ours = OurSide(model, search.but(penalty="length", finish="beam"))
    try:
        theirs = foreign.side()
    except NotRunError as error:
        return unproved(conversion, str(error), ours.versions, foreign.files)
    return certify(
        ours,
        theirs,
        conversion=conversion,
        files=foreign.files,
        longest=model.recipe.data.max_length,
        alpha=alpha,
        penalty="length",
    )
