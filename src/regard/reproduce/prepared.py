"""Prepare the data of a study once, even if several processes begin at the same time."""

from regard.data.pairs import prepared_manifest
from regard.errors import DataError
from regard.files.whole import refuse_filled, write_file
from regard.reproduce.scales import data_in
from regard.reproduce.tables import Study
from regard.study.locks import locked


def prepare_text_once(study: Study) -> None:
    """Prepare the text of the scale once, in `study.out`.

    Raises DataError if the directory was begun at another scale, if its data cannot be read, or if
    a new directory has files in its folder of text.
    """
    mark = study.out / "scale.txt"
    with locked(study.out / ".prepare.lock"):
        begun = mark.read_text("utf-8").strip() if mark.exists() else study.scale.name
        if begun != study.scale.name:
            raise DataError(
                f"was begun at scale {begun}, not {study.scale.name}: choose another --out",
                study.out,
            )
        if not data_in(study.out).exists():
            if not mark.exists():
                refuse_filled(study.out / "corpus")
            write_file(mark, study.scale.name + "\n")
            study.scale.prepare(study.out)
        prepared_manifest(data_in(study.out))
