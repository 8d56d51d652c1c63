"""Vocabularies that a Hugging Face folder cannot hold."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from complaints import refused
from systems_under_test import base_model

from foretext.interop.hub import export_hub
from foretext.text.tokenizers.base import TokenizerConfig
from foretext.text.tokenizers.training import train_tokenizer


@pytest.mark.parametrize("kind", ["word-list", "words"])
def test_whole_words_are_refused_in_one_line(kind: str, tmp_path: Path) -> None:
    model = replace(base_model("gpt2"), tokenizer=train_tokenizer(["The cat sees fish."], TokenizerConfig(kind, 64)))
    assert model.tokenizer.kind == kind
    with refused("words", "transformers"):
        export_hub(model, tmp_path / "out")
    assert not (tmp_path / "out").exists()
