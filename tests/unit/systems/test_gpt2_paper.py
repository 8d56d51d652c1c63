"""GPT-2 as its paper and its released code have it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from foretext.systems import SYSTEMS

SIZES = SYSTEMS["gpt2"].sizes


@pytest.mark.parametrize(
    ("name", "shape", "parameters"),
    [
        ("124M", (12, 768, 12), 124_439_808),
        ("355M", (24, 1024, 16), 354_823_168),
        ("774M", (36, 1280, 20), 774_030_080),
        ("1.5B", (48, 1600, 25), 1_557_611_200),
    ],
)
def test_the_four_models(name: str, shape: tuple[int, int, int], parameters: int) -> None:
    model = SIZES[name].model
    assert (model.layers, model.width, model.heads) == shape
    assert (model.context, model.norm, model.scale_residuals) == (1024, "pre", True)
    assert (model.epsilon, model.init_std) == (1e-5, 0.02)
    assert replace(model, vocabulary=50257).parameters() == parameters


def test_what_paper_means() -> None:
    assert SIZES["paper"] == SIZES["124M"]
    assert (SIZES["paper"].tokenizer.kind, SIZES["paper"].tokenizer.size) == ("byte-bpe", 50257)
    assert SIZES["paper"].pretraining.batch_size == 512
