"""CoVe's objective against its own decoder told word by word, from files to gradients."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from complaints import refused
from systems_under_test import byte_tokenizer
from tolerance import close, terms_of
from torch import Tensor
from translation_under_test import TranslationModel

from foretext.batch import IGNORE, Batch
from foretext.nn.recurrent.cove import CoveConfig, CoveTrunk
from foretext.objectives.parallel_text import (
    Pair,
    ParallelText,
    ShardedPairs,
    TranslationSettings,
    count_words,
    encoded_pair,
    length_order,
    pair_ids,
)
from foretext.objectives.translation import NAME, TranslationObjective, words_before
from foretext.text.corpus.shard_writing import Sharding, write_documents
from foretext.text.corpus.shards import TokenShards
from foretext.text.corpus.text_files import ReadReport
from foretext.text.tokenizers.word_tokenizer import WordTokenizer, word_tokenizer
from foretext.text.words.word_list import END, FIRST_WORD, START, UNKNOWN, WordList

CONFIG = CoveConfig(vocabulary=7, vectors=5, width=6, dropout=0.0, init_range=0.5)
SETTINGS = TranslationSettings(embedding=4)
ENCODED = terms_of((4 + 2) * (6 + 3))  # four words and two layers: the inputs', the state's
# Of five words: two layers' inputs and states, the query, its scores, the softmax's sum, the mixture, what is fed on;
# then a logit, the softmax's sum, and eleven words.
TOLD = terms_of(ENCODED, 5 * (4 + 6 + 6 + 6 + 6 + 6 + 6 + 4 + 4 + 12), 6, 9, 11)
BACK = 3 * TOLD  # through two products a sum


def words(targets: int) -> WordTokenizer:
    return word_tokenizer("abcde", WordList(tuple(f"t{number}" for number in range(targets - FIRST_WORD))))


def parts() -> tuple[CoveTrunk, TranslationObjective]:
    trunk, objective = CoveTrunk(CONFIG), TranslationObjective(CONFIG, SETTINGS, words(9))
    trunk.put_vectors(np.random.default_rng(0).normal(size=(7, 5)).astype(np.float32))
    return trunk, objective


def pair(source: list[int], target: list[int]) -> Pair:
    return Pair(np.array(source), np.array([*target, END]))


PAIRS = [pair([0, 3, -1, 6], [3, 4]), pair([2], [5, 8, 3, 6]), pair([5, -1], []), pair([1, 1, 4], [7])]


def gradients(trunk: CoveTrunk, objective: TranslationObjective) -> dict[str, Tensor]:
    named = [*trunk.named_parameters(), *objective.named_parameters()]
    assert all(parameter.grad is not None for _, parameter in named)
    return {name: parameter.grad.clone() for name, parameter in named if parameter.grad is not None}


def test_the_loss_is_that_of_the_whole_model_told_word_by_word() -> None:
    """Against `TranslationModel` with the same weights, one sentence and one step at a time."""
    trunk, objective = parts()
    model = TranslationModel(CONFIG, 9, 4).eval()
    model.encoder.load_state_dict(trunk.encoder.state_dict())
    model.decoder.load_state_dict(objective.decoder.state_dict())
    expected = 0.0
    with torch.no_grad():
        for one in PAIRS:
            state = model.encode(trunk.vectors(torch.from_numpy(one.source))[None])
            last = START
            for word in one.target.tolist():
                logits, state = model.decode_step(torch.tensor([last]), state)
                expected -= float(torch.log_softmax(logits[0], 0)[word])
                last = word
    found = objective(trunk, objective.make(PAIRS)).losses[NAME]
    close(found.total, expected, terms=TOLD)
    assert found.count == 3 + 5 + 1 + 2 == objective.counts(objective.make(PAIRS))[NAME]


def test_a_word_is_told_by_a_softmax_over_the_context_adjusted_state() -> None:
    """p(y_t) = softmax(W_out h̃_t + b_out), a number at a time, given every h̃ of the decoder."""
    trunk, objective = parts()
    batch = objective.make(PAIRS)
    assert batch.targets_BT is not None
    expected, output = 0.0, objective.decoder.output
    with torch.no_grad():
        read_BTD = objective.decoder(words_before(batch.targets_BT), trunk.encode(batch)[1], batch.targets_BT != IGNORE)
        for states, targets in zip(read_BTD.tolist(), batch.targets_BT.tolist()):
            for state, word in zip(states, targets):
                rows = zip(output.weight.tolist(), output.bias.tolist())
                scores = [sum(w * h for w, h in zip(row, state)) + bias for row, bias in rows]
                expected += 0.0 if word == IGNORE else math.log(sum(map(math.exp, scores))) - scores[word]
    close(objective(trunk, batch).losses[NAME].total, expected, terms=TOLD)


def test_the_word_before() -> None:
    targets = torch.tensor([[5, 6, END, IGNORE], [IGNORE, IGNORE, 7, END]])
    assert words_before(targets).tolist() == [[START, 5, 6, END], [START, START, START, 7]]


def padded_anywhere(batch: Batch, left: int, right: int) -> Batch:
    def wider(x: Tensor, fill: int) -> Tensor:
        rows = len(x)
        return torch.cat([x.new_full((rows, left), fill), x, x.new_full((rows, right), fill)], dim=1)

    assert batch.mask_BT is not None and batch.targets_BT is not None
    return Batch(wider(batch.ids_BT, 3), wider(batch.mask_BT, 0), targets_BT=wider(batch.targets_BT, IGNORE))


def test_padding_changes_nothing() -> None:
    trunk, objective = parts()
    batch, found = objective.make(PAIRS), []
    for left, right in ((0, 0), (0, 3), (2, 0), (4, 1)):
        trunk.zero_grad()
        objective.zero_grad()
        loss = objective(trunk, padded_anywhere(batch, left, right)).losses[NAME]
        loss.total.backward()
        found.append((float(loss.total.detach()), gradients(trunk, objective)))
        assert loss.count == 11
    for total, grads in found[1:]:
        close(total, found[0][0], terms=TOLD)
        close(grads, found[0][1], terms=BACK)
    assert all(bool(grad.any()) for grad in found[0][1].values()), "everything learns"


@pytest.mark.parametrize("micro", [1, 3])
def test_micro_batches_add_up(micro: int) -> None:
    trunk, objective = parts()
    whole = objective(trunk, objective.make(PAIRS)).losses[NAME]
    (whole.total / whole.count).backward()
    expected = gradients(trunk, objective)
    trunk.zero_grad()
    objective.zero_grad()
    for start in range(0, len(PAIRS), micro):
        loss = objective(trunk, objective.make(PAIRS[start : start + micro])).losses[NAME]
        (loss.total / whole.count).backward()
    close(gradients(trunk, objective), expected, terms=BACK)


def test_the_trunk_has_both_layers_and_vectors_do_not_learn() -> None:
    trunk, objective = parts()
    batch = objective.make(PAIRS)
    hidden = trunk(batch, keep_layers=True)
    assert [layer.shape[2] for layer in hidden.layers] == [5, 6, 6] and torch.equal(hidden.top, hidden.layers[2])
    lower = replace(CONFIG, layers=1)
    first = CoveTrunk(lower)
    first.load_state_dict({name: value for name, value in trunk.state_dict().items() if "layers.1" not in name})
    close(hidden.layers[1], first(batch).top, terms=ENCODED)
    assert torch.equal(hidden.layers[0][0, 1], trunk.vectors.table_VE[3]) and not hidden.layers[0][0, 2].any()
    assert batch.mask_BT is not None and not hidden.layers[0][~batch.mask_BT].any()
    names = [name for group in trunk.layer_groups() for name in group]
    assert sorted(names) == sorted(name for name, _ in trunk.named_parameters()) and "vectors" not in " ".join(names)
    assert sum(parameter.numel() for parameter in trunk.parameters()) == CONFIG.parameters()
    again = CoveTrunk(CONFIG)
    again.load_state_dict(trunk.state_dict())
    assert torch.equal(again(batch).top, hidden.top)
    trunk.grow_vocabulary(9)
    assert torch.equal(trunk(batch).top, hidden.top)
    with refused("2 vectors", "7", "--set model.vectors=4"):
        again.put_vectors(np.zeros((2, 4), dtype=np.float32))


def test_it_learns_to_translate_word_by_word() -> None:
    config = replace(CONFIG, width=24, init_range=0.2)
    trunk, objective = CoveTrunk(config), TranslationObjective(config, SETTINGS, words(10))
    trunk.put_vectors(np.eye(7, 5, dtype=np.float32) + np.random.default_rng(1).normal(size=(7, 5)).astype(np.float32))
    rng = np.random.default_rng(2)
    sources = [rng.integers(0, 7, 3).tolist() for _ in range(32)]
    batch = objective.make([pair(source, [FIRST_WORD + word for word in source]) for source in sources])
    optimizer = torch.optim.Adam([*trunk.parameters(), *objective.parameters()], lr=0.03)
    losses = []
    for _ in range(40):
        loss = objective(trunk, batch).losses[NAME]
        optimizer.zero_grad()
        (loss.total / loss.count).backward()
        optimizer.step()
        losses.append(float(loss.total.detach()) / loss.count)
    assert losses[0] == pytest.approx(math.log(10), abs=0.5) and losses[-1] < 0.7


# -- from files ------------------------------------------------------------------------------------------------------


def files(folder: Path, vectors: str = "a 1 0\nman 0 1\nsleeps 1 1\n.  2 2\n") -> tuple[Path, Path, Path]:
    found = folder / "en", folder / "de", folder / "glove.txt"
    texts = (
        "A man sleeps.\nA zebra sleeps.\n" + "a " * 80 + "\nA man\n",
        "Ein Mann schläft.\nEin Zebra.\nx\nEin Mann\n",
    )
    for path, text in zip(found, (*texts, vectors.replace("  ", " "))):
        path.write_text(text, encoding="utf-8")
    return found


def test_from_files_to_pairs(tmp_path: Path) -> None:
    source, target, glove = files(tmp_path, "a 1 0\nman 0 1\nqueen 5 5\nsleeps 1 1\n. 2 2\nking 6 6\n")
    settings = TranslationSettings(most_words=3)
    text = ParallelText(source, target, settings)
    read = list(text.pairs())
    assert [pair.reference for pair in read] == ["Ein Mann schläft.", "Ein Zebra.", "Ein Mann"]
    counts = count_words(text)
    assert counts.report.overlong == 1 and counts.report.pairs == 4 and counts.pairs == 3 and counts.different
    assert counts.sources["A"] == 3 and counts.targets["￭."] == 2
    tokenizer, matrix, _ = counts.vocabularies(glove, 8)
    assert tokenizer.target_words.words == ("Ein", "Mann", "￭.")
    # "A" occurs three times and is looked up as "a"; the others by frequency, then the file's first
    assert tokenizer.pieces == ["<unk>", "<|endoftext|>", "a", ".", "man", "sleeps", "queen", "king"]
    assert matrix.tolist() == [[0, 0], [0, 0], [1, 0], [2, 2], [0, 1], [1, 1], [5, 5], [6, 6]]
    np.testing.assert_array_equal(settings.vectors(glove, tokenizer), matrix)
    fewer, *_ = counts.vocabularies(glove, 5)
    assert fewer.pieces[2:] == ["a", ".", "man"]
    pairs = [encoded_pair(pair, tokenizer) for pair in read]
    assert pairs[1].source.tolist() == [2, 0, 5, 3], "A as a, and zebra has no vector"
    assert pairs[0].target.tolist() == [3, 4, UNKNOWN, 5, END]
    assert len(list(replace(text, keep_all=True).pairs())) == 4
    lower = next(replace(text, settings=replace(settings, lower=True)).pairs())
    assert lower.target[0] == "ein" and lower.reference == "Ein Mann schläft."
    glove.write_text("a 1 0\nman 0 1\n")
    with refused(str(glove), "'.'"):
        settings.vectors(glove, tokenizer)


@pytest.mark.parametrize("counted", [1 << 20, 7], ids=["at once", "in parts"])
def test_pairs_go_through_shards(tmp_path: Path, counted: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("foretext.objectives.parallel_text.COUNTED", counted)
    source, target, glove = files(tmp_path)
    text = ParallelText(source, target, SETTINGS)
    read = list(text.pairs()) * 5  # copies are on one side
    counts = count_words(text)
    tokenizer, *_ = counts.vocabularies(glove, 100)
    documents = (one for _ in range(5) for one in counts.documents(tokenizer, 3))
    report = ReadReport(rules={"one pair per line": 1})
    write_documents(documents, tokenizer, tmp_path / "tokens", report, Sharding(3, 0.3), pair_ids(tokenizer))
    objective = TranslationObjective(replace(CONFIG, vocabulary=tokenizer.size), SETTINGS, tokenizer)
    found = []
    for split in ("train", "valid"):
        shards = TokenShards.open(tmp_path / "tokens", split, verify=True)
        pairs = objective.examples(shards, 10, 0)
        assert isinstance(pairs, ShardedPairs)
        own = [pairs.example(0, index) for index in range(len(pairs))]
        sources, targets = pairs.lengths()
        assert sources.tolist() == [len(pair.source) for pair in own]
        assert targets.tolist() == [len(pair.target) for pair in own]
        usual = sum(len(pair.source) + len(pair.target) for pair in own) // len(own)
        assert objective.usual_length(pairs, 200) == usual, "validation takes as many pairs as it has room for"
        assert sorted(index for step in range(2) for index in objective.order(pairs, 8, 0).batch(step)[1])[0] == 0
        batch = objective.make(own[:3])
        assert batch.real_tokens == sum(len(pair.source) + len(pair.target) for pair in own[:3])
        found.append([(tuple(pair.source), tuple(pair.target)) for pair in own])
    expected = [(tuple(pair.source), tuple(pair.target)) for pair in (encoded_pair(p, tokenizer) for p in read)]
    assert sorted(found[0] + found[1]) == sorted(expected) and not set(found[0]) & set(found[1])


def test_pairs_of_like_length_come_together() -> None:
    sources, targets = np.random.default_rng(0).integers(1, 30, (2, 200))

    class Lengths(ShardedPairs):
        def __init__(self) -> None:
            self.sources, self.starts = sources, np.zeros(200, dtype=np.int64)
            self.ends = sources + targets - 1

    order = length_order(Lengths(), 10, 4)
    seen = []
    for step in range(order.steps_per_epoch):
        epoch, indices = order.batch(step)
        assert epoch == 0
        seen += indices
        lengths = sources[indices]
        assert max(lengths) - min(lengths) <= 4
    assert sorted(seen) == list(range(200))
    assert length_order(Lengths(), 10, 4).batch(21) == order.batch(21) != order.batch(1)


def test_mistakes_are_one_clear_line(tmp_path: Path) -> None:
    source, target, glove = files(tmp_path)
    counts = count_words(ParallelText(source, target, SETTINGS))
    with refused(str(source), str(target), "4 pairs", "1 words", "--set objective.longest"):
        count_words(ParallelText(source, target, replace(SETTINGS, longest=1)))
    (tmp_path / "short").write_text("Ein Mann\n")
    with refused(str(source), "4 lines", str(tmp_path / "short")):
        count_words(ParallelText(source, tmp_path / "short", SETTINGS))
    glove.write_text("a 1 2\nman 3\nsleeps 1 2\n")
    with refused(f"{glove} line 2", "1 numbers"):
        counts.vocabularies(glove, 100)
    glove.write_text("le 1 2\n")
    with refused(str(glove), "5 source", "language"):
        counts.vocabularies(glove, 100)
    for name in ("most_words", "least_count", "embedding", "longest"):
        with refused(f"objective.{name}", "0"):
            replace(SETTINGS, **{name: 0}).check()
    with refused("words", "byte-bpe"):
        TranslationObjective(CONFIG, SETTINGS, byte_tokenizer())
    with refused("model.width", "even", "7"):
        replace(CONFIG, width=7).check()
