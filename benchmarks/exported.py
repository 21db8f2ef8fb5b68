"""The model of a benchmark, as `regard export` writes it for other programs."""

from collections.abc import Collection
from pathlib import Path

from regard.exchange.to_ctranslate2 import write_ctranslate2
from regard.exchange.to_hf import write_hf
from regard.run.model_directory import open_model


def write_exported(
    directory: Path, folder: Path, environments: Collection[str]
) -> dict[str, list[str]]:
    """Write the model for the programs of these environments in `folder`.

    Returns, by environment, the argument that gives the model to its program. Environments that
    read the model as regard writes it have no entry.
    """
    model, given = open_model(directory), {}
    if "ctranslate2" in environments:
        (folder / "ctranslate2").mkdir()
        write_ctranslate2(model, folder / "ctranslate2", "fp32")
        given["ctranslate2"] = [f"--exported={folder / 'ctranslate2'}"]
    if "transformers" in environments:
        (folder / "hf").mkdir()
        write_hf(model, folder / "hf")
        given["transformers"] = [f"--exported={folder / 'hf'}"]
    return given
