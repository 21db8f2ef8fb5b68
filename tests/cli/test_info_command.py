"""`regard info` of models by strangers, who can compute checksums."""

import json

from cli.refusing import World, regard
from cli.spoiling import reseal


def test_values_of_other_types_are_left_out(world: World) -> None:
    model = world.copy("model")
    reseal(model, step="many", averaged=7)
    shown = regard("info", model)
    assert shown.status == 0, shown
    assert "trained" not in shown.stdout


def test_a_manifest_cannot_command_the_terminal(world: World) -> None:
    model = world.copy("model")
    reseal(model, imported={"from": "\x1b[31m\n"})
    shown = regard("info", model)
    assert r"imported     from \x1b[31m  (None), by regard None" in shown.stdout, shown


def test_json_cannot_command_the_terminal_and_loses_nothing(world: World) -> None:
    model, name = world.copy("model"), "\x1b[31m\x7f\x9b31m\u2028é"
    reseal(model, imported={"from": name})
    shown = regard("info", model, "--json").stdout
    assert shown.replace("\n", "").isprintable()
    assert "é" in shown
    assert name in json.loads(shown)["provenance"]["imported"]["from"]


def test_a_certificate_of_logits_that_are_all_equal(world: World) -> None:
    model = world.copy("model")
    empty = {"conversion": "x", "date": "", "versions": {}, "files": {}}
    (model / "certificate.json").write_text(json.dumps(empty))
    reseal(model, "certificate.json")
    shown = regard("info", model)
    assert "logits       differ by at most 0, 0 of their range" in shown.stdout, shown
