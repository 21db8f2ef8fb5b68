"""The precision that is chosen for a machine."""

import pytest
import torch

from regard import precision
from regard.arithmetic import choose
from regard.precision import settled


@pytest.mark.parametrize(
    ("int8", "bf16", "auto", "fastest"),
    [
        (True, True, "bf16", "int8"),
        (True, False, "fp32", "int8"),
        (False, True, "bf16", "bf16"),
        (False, False, "fp32", "fp32"),
    ],
)
def test_a_precision_suits_the_machine(
    int8: bool, bf16: bool, auto: str, fastest: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(precision, "choose_device", lambda: torch.device("cpu"))
    monkeypatch.setattr(choose, "can_pack", lambda dtype: True)
    monkeypatch.setattr(choose, "has_avx2", lambda: True)
    monkeypatch.setattr(choose, "largest_weight", lambda: 64 if int8 else 0)
    monkeypatch.setattr(choose, "has_bf16", lambda device: bf16)
    assert (settled("auto"), settled("fastest")) == (auto, fastest)
    assert [settled(asked) for asked in ("fp32", "bf16", "int8")] == ["fp32", "bf16", "int8"]
