"""Runs of `modern` with the settings of Llama and Qwen3 are exported: `transformers` gives the same logits and the same
text. Other settings are refused by name."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from complaints import refused
from masked_references import shaken, there
from systems_under_test import base_model
from tolerance import close, doubles
from transformer_terms import forward_terms

from foretext.api import LanguageModel
from foretext.interop.hub import export_hub
from foretext.runs.model import SavedModel
from foretext.runs.run_config import ModelSections
from foretext.systems import SYSTEMS
from foretext.systems.base import TrunkParts

transformers = pytest.importorskip("transformers")

CHOICES: dict[str, Any] = {"activation": "silu", "gated": True, "values": "own", "embedding_norm": False}
CHOICES |= {"embedding_skips": False, "soft_cap": 0.0}
NORMED = {"LlamaForCausalLM": False, "Qwen3ForCausalLM": True}
SHAPES = [{"layers": 2, "width": 32, "heads": 4}, {"layers": 3, "width": 48, "heads": 3, "inner": 40}]


def model_with(**changes: Any) -> SavedModel:
    """A model over bytes, with weights far from their initial values."""
    found = base_model("modern")
    shape = replace(found.model_config, **changes)
    trunk = SYSTEMS["modern"].build_trunk(TrunkParts(shape))
    return replace(found, config=ModelSections(found.info, shape), trunk=shaken(trunk))


@pytest.mark.parametrize("name", NORMED)
@pytest.mark.parametrize("sizes", SHAPES, ids=["plain", "inner"])
def test_the_same_logits_there(name: str, sizes: dict[str, int], tmp_path: Path) -> None:
    """Theirs computes angles in float32, whatever the precision of the model. So the tolerance is that of float32."""
    model = model_with(**CHOICES, **sizes, query_key_norm=NORMED[name], rotary_base=500.0)
    assert export_hub(model, tmp_path / "out") == []
    theirs = there(transformers.AutoModelForCausalLM, tmp_path / "out")
    assert type(theirs).__name__ == name
    ids = np.random.default_rng(0).integers(0, 257, 30).tolist()
    with torch.no_grad():
        expected = theirs(input_ids=torch.tensor([ids])).logits[0]
    assert expected.std() > 0.1
    inner = sizes.get("inner", 4 * sizes["width"])
    terms = forward_terms(sizes["layers"], sizes["width"], inner, len(ids))
    close(LanguageModel(model, Path()).logits(ids), expected, terms=terms, precision=torch.float32)
    far = replace(model, config=ModelSections(model.info, replace(model.model_config, rotary_base=10000.0)))
    trunk = SYSTEMS["modern"].build_trunk(TrunkParts(far.model_config))
    trunk.load_state_dict(model.trunk.state_dict())
    other = LanguageModel(replace(far, trunk=trunk), Path()).logits(ids)
    assert float(np.abs(np.asarray(other) - expected.numpy()).max()) > 1e-3, "the base of the angles matters"


def test_it_writes_the_same_text_there(tmp_path: Path) -> None:
    with doubles():
        model = model_with(**CHOICES)
        export_hub(model, tmp_path / "out")
        theirs = there(transformers.AutoModelForCausalLM, tmp_path / "out")
        tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "out", local_files_only=True)
        given = tokenizer("The cat", return_tensors="pt").input_ids
        banned = [[number] for number in model.tokenizer.specials.values() if number != tokenizer.eos_token_id]
        written = theirs.generate(given, max_new_tokens=12, do_sample=False, bad_words_ids=banned or None)
        text = tokenizer.decode(written[0, given.shape[1] :], skip_special_tokens=True)
        assert LanguageModel(model, Path()).generate("The cat", max_tokens=12, temperature=0) == text != ""


@pytest.mark.parametrize(
    ("choice", "said"),
    [
        ({"activation": "squared-relu"}, "model.activation=silu"),
        ({"gated": False}, "model.gated=true"),
        ({"values": "embeddings"}, "model.values=own"),
        ({"embedding_norm": True}, "model.embedding_norm=false"),
        ({"embedding_skips": True}, "model.embedding_skips=false"),
        ({"soft_cap": 15.0}, "model.soft_cap=0.0"),
        ({"untied": True}, "model.untied=false"),
        ({"bias": True}, "model.bias=false"),
        ({"positions": "learned"}, "model.positions=rotary"),
        ({"norm_kind": "layer"}, "model.norm_kind=rms"),
        ({"norm": "post"}, "model.norm=pre"),
    ],
    ids=str,
)
def test_what_they_have_not_is_refused_by_name(choice: dict[str, Any], said: str, tmp_path: Path) -> None:
    with refused(*choice, "qwen3", f"--set {said}"):
        export_hub(model_with(**CHOICES | choice), tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_all_that_differs_is_named_at_once(tmp_path: Path) -> None:
    """The error compares with the nearest table; without query-key norm that is Llama's."""
    with refused("llama", "--set model.activation=silu --set model.gated=true", "--set model.soft_cap=0.0"):
        export_hub(base_model_without_query_key_norm(), tmp_path / "out")


def base_model_without_query_key_norm() -> SavedModel:
    return model_with(query_key_norm=False)
