"""Prepare the data of a study once, even if several processes begin at the same time."""

from regard.data.pairs import prepared_manifest
from regard.errors import DataError
from regard.files.locks import locked
from regard.files.whole import refuse_filled, write_file
from regard.reproduce.scales import data_in
from regard.reproduce.tables import Study


def refuse_another_scale(study: Study) -> None:
    """Raise DataError if the directory of a study was begun at another scale."""
    mark = study.out / "scale.txt"
    begun = mark.read_text("utf-8", "replace").strip() if mark.exists() else study.scale.name
    if begun != study.scale.name:
        raise DataError(
            f"was begun at scale {begun}, not {study.scale.name}: choose another --out", study.out
        )


def prepare_text_once(study: Study) -> None:
    """Prepare the text of the scale once, in `study.out`.

    Raises DataError if the directory was begun at another scale, or if the prepared data cannot be
    read. Raises DataError, too, if the folders corpus, data or trees in the directory have files,
    although no study was begun there. Raises RegardError if a file cannot be written. Raises the
    errors of the scale's `fetch` and `prepare`, for example DataError if the text is missing.
    """
    with locked(study.out / ".prepare.lock"):
        _refuse_foreign(study)
        if not data_in(study.out).exists():
            study.scale.fetch(study.out)
            _mark(study)
            study.scale.prepare(study.out)
        prepared_manifest(data_in(study.out))


def begin_directory(study: Study) -> None:
    """Make the directory of a study that needs no text.

    Raises DataError if the directory was begun at another scale, or if its folders corpus, data or
    trees have files, although no study was begun there. Raises RegardError if a file cannot be
    written.
    """
    with locked(study.out / ".prepare.lock"):
        _refuse_foreign(study)
        _mark(study)


def _refuse_foreign(study: Study) -> None:
    refuse_another_scale(study)
    if (study.out / "scale.txt").exists():
        return
    refuse_filled(study.out / "corpus")
    refuse_filled(data_in(study.out))
    # A study of an earlier version has .data-gold.lock and no scale.txt; its trees are accepted.
    if not (study.out / ".data-gold.lock").exists():
        refuse_filled(study.out / "trees")


def _mark(study: Study) -> None:
    """Write the name of the scale into scale.txt, which shows that the directory was begun."""
    write_file(study.out / "scale.txt", study.scale.name + "\n")
