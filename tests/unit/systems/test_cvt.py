"""Cross-view training from labelled rows and text to a run that predicts: what is learned in which turn, other tasks,
going on, what can be given wrongly."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from complaints import names, refused
from systems_under_test import pretrain_request, stopping_after, write_text
from tolerance import close, doubles, terms_of

import foretext as ft
from foretext.api import LanguageModel, TaskModel, new_model
from foretext.batch import Batch
from foretext.config import settings_in
from foretext.errors import Interrupted
from foretext.nn.recurrent.cvt import CvtConfig, CvtEncoder
from foretext.objectives.base import Draw
from foretext.runs.directory import RunDirectory
from foretext.runs.inspection import summary_of
from foretext.runs.model import encode, load_model
from foretext.runs.report import Reporter
from foretext.systems.base import TrunkParts
from foretext.systems.cvt import CVT
from foretext.tasks.files.conll import TaggedSentence
from foretext.tasks.files.rows import Row
from foretext.tasks.heads.cross_view_head import CrossViewHead, ManySources, Sourced, UnlabelledText
from foretext.tasks.heads.token_tasks import TaggedExample
from foretext.text.tokenizers.word_vocabulary import Words
from foretext.text.words.word_forms import WordForms, with_vectors
from foretext.train.finetuning.finetune import FinetuneRequest, finetune
from foretext.train.finetuning.finetune_request import OtherTask
from foretext.train.loop import Loop, step_seed
from foretext.train.pretraining.pretrain import pretrain

SHAPE = ("model.cells=12", "model.upper_cells=12", "model.direction=8", "model.vectors=8", "model.char_filters=3")
SETS = ("objective.hidden=8", "objective.average=0.9", "training.batch_size=4", "training.rate=0.01")
WHO, DOES = ("cat", "dog", "Tom", "Ann"), ("sees", "eats", "likes")


def sentences(count: int, seed: int = 0) -> list[TaggedSentence]:
    draw = random.Random(seed)
    found = []
    for number in range(count):
        words = ["the", draw.choice(WHO), draw.choice(DOES), "a", draw.choice(WHO), "42"]
        tags = ["O", "B-N", "O", "O", "B-N", "B-C"]
        found.append(TaggedSentence(tuple(words), tuple(tags), f"sentence {number + 1}"))
    return found


TEXT = [" ".join(row.words) + " again" for row in sentences(30, seed=1)]


def test_each_layer_has_its_own_width() -> None:
    narrow = new_model(sentences(4), "cvt", "tiny", 0, (*SHAPE, "model.upper_cells=6"), None, "tagging", TEXT)
    found = narrow.features(TEXT[:2], each=True)
    assert [[len(vector) for vector in row] for row in found] == [[8 + 3 * 3, 2 * 8, 2 * 6]] * 2
    with refused("layer 0", "17", "layer 2", "12", "--each", "each=True"):
        narrow.features(TEXT[:2], layers=[0, 2])


@doubles()
def test_a_trained_run_gives_vectors(tmp_path: Path) -> None:
    made = TaskModel(finetune(request_of(out=tmp_path / "run", epochs=2)).model, tmp_path / "run")
    run = ft.load(tmp_path / "run")
    assert isinstance(run, TaskModel)
    texts = ["the cat sees Tom", "an unheard zebra"]
    found = run.features(texts)
    assert found.shape == (2, 2 * 8) and found.dtype == np.float32
    close(found, made.features(texts), terms=terms_of(1, 4))  # rounded to float32, and the mean of at most four words
    model = run.model
    ids = model.tokenizer.encode(texts[0])
    frame = CVT.build_layout(dict(model.tokenizer.specials), 100, "forward").frame(ids)
    with torch.no_grad():
        top = model.trunk(Batch(torch.tensor([list(frame.ids)]))).top[0, 1:-1]
    close(found[0], top.mean(0), terms=terms_of(1, 4))
    each = run.features(texts, each=True)
    assert [[len(vector) for vector in row] for row in each] == [[8 + 3 * 3, 2 * 8, 2 * 8]] * 2
    words = run.word_features(texts, layers=[1, 2])
    assert [one.words for one in words] == [text.split() for text in texts] and words[1].vectors.shape == (3, 16)
    with refused("vectors", "averaged"):
        TaskModel(model, None, (made,)).features(texts)


def base_of(rows: Any, task: str = "tagging", more: Any = TEXT) -> LanguageModel:
    return new_model(rows, "cvt", "tiny", 0, SHAPE, None, task, more)


def request_of(rows: Any = None, kind: str = "tagging", **changes: Any) -> FinetuneRequest:
    rows = sentences(16) if rows is None else rows
    base = base_of(rows, kind, changes.get("unlabelled", TEXT)).model
    settings = {"from_scratch": True, "unlabelled": TEXT, "epochs": 4, "sets": SETS, "valid": rows[:6]}
    return FinetuneRequest(base, rows, kind, **(settings | changes))


def test_what_the_paper_has() -> None:
    paper = CVT.sizes["paper"]
    assert isinstance(paper.model, CvtConfig)
    assert (paper.model.cells, paper.model.upper_cells, paper.objective.hidden) == (1024, 512, 512)  # type: ignore[attr-defined]
    assert paper.objective.views == ("forward", "backward", "future", "past")  # type: ignore[attr-defined]
    training = paper.finetuning
    assert (training.optimizer, training.schedule, training.warmup_steps, training.rate) == ("sgd", "root", 5000, 0.5)


@doubles()
def test_words_of_one_form_share_a_vector_and_keep_their_spelling() -> None:
    tokenizer = Words(["</S>", "<UNK>", "The", "the", "10", "dog"], {"</S>": 0, "<UNK>": 1}, lower=False)
    tokenizer.number_unknown()
    forms = WordForms(tokenizer, 6)
    ids = tokenizer.encode("The the 99 THE Dog zebra")
    assert ids == [2, 3, 6, 7, 8, 9]
    rows, characters = forms.read(np.array(ids))
    assert rows.tolist() == [2, 2, 4, 2, 5, 1], "99 is 00 as 10 is; an unknown form is unknown"
    assert len({tuple(row) for row in characters.tolist()}) == 6, "but each is spelled as it is written"
    trunk = CvtEncoder(CvtConfig(6, 8, char_filters=3, char_length=6, cells=8, upper_cells=8, direction=8), forms.read)
    with torch.no_grad():
        top = trunk.eval()(Batch(torch.tensor([ids, [5] * 6]))).top
        alone = trunk(Batch(torch.tensor([ids]))).top
    close(top[:1], alone, terms=terms_of(2 * 6 * 3 * (8 + 9)))  # six words each way, through three layers


@doubles()
def test_it_learns_a_rule_and_comes_back_from_disk(tmp_path: Path) -> None:
    rows = sentences(16)
    sets = (*SETS, "training.rate=0.02")
    model = TaskModel(finetune(request_of(rows, out=tmp_path / "run", epochs=12, sets=sets)).model, None)
    run = RunDirectory(tmp_path / "run")
    figures = [row["validation"] for row in run.metrics() if "validation" in row]
    assert len(figures) == 12 and figures[-1]["f1"] > 0.95 and figures[-1]["loss"] < 0.5 * figures[0]["loss"]
    logged = {name for row in run.metrics() for name in row.get("losses", {})}
    assert {"label", "label.forward", "label.past"} <= logged
    again = TaskModel(load_model(tmp_path / "run"), tmp_path / "run")
    new = [("the", "zebra", "eats", "a", "cat", "7")]
    assert again.predict(new) == model.predict(new)
    assert model.predict([rows[0].words])[0] == list(rows[0].tags or ())
    assert run.names() == ["config.toml", "model.safetensors", "tokenizer.json", "training/position.json"]


@pytest.mark.parametrize("kind", ["tagging", "classification"])
def test_going_on_equals_never_stopping(kind: str, tmp_path: Path) -> None:
    rows: Any = sentences(6)
    if kind == "classification":
        rows = [Row((" ".join(row.words),), "cat" if "cat" in row.words else "other", row.where) for row in rows]
    others = [OtherTask("more", "tagging", sentences(4, seed=3))]
    sets = (*SETS, "training.dropout=0.2", "training.micro_batch=3")
    for valid in (rows[:4], []):
        name = "with" if valid else "without"
        request = request_of(rows, kind, out=tmp_path / f"a-{name}", also=others, sets=sets, epochs=2, valid=valid)
        with stopping_after(5) as stop, pytest.raises(Interrupted):
            finetune(request, stopping=stop)
        finetune(replace(request, resume=True))
        straight = finetune(replace(request, out=tmp_path / f"b-{name}")).model
        a, b = (RunDirectory(tmp_path / f"{letter}-{name}").read("model.safetensors") for letter in "ab")
        assert a == b
        again = load_model(tmp_path / f"b-{name}")
        assert isinstance(again.task, CrossViewHead) and set(again.task.weights) == set(straight.task.weights)  # type: ignore[union-attr]
    with refused(str(tmp_path / "a-without"), "--unlabelled", "--also", "--vectors"):
        finetune(replace(request, resume=True, unlabelled=TEXT[1:]))


def test_turns_and_what_learns_in_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """A labelled batch teaches the primary and the encoder, an unlabelled one the views, words and first layer."""
    moved: list[tuple[set[str], set[str]]] = []
    real = Loop.gradients

    def watched(loop: Loop, step: int, parts: Any) -> dict[str, float]:
        losses = real(loop, step, parts)
        named = loop.job.optimizer.parameters
        moved.append((set(losses), {n for n, p in named.items() if p.grad is not None and bool(p.grad.any())}))
        return losses

    monkeypatch.setattr(Loop, "gradients", watched)
    finetune(request_of(epochs=1, also=[OtherTask("more", "tagging", sentences(6, seed=3))]))
    steps = moved[-12:]
    labelled, text = [s for s in steps if len(s[0]) == 1], [s for s in steps if len(s[0]) > 1]
    assert len(labelled) == len(text) == 6 and {next(iter(s[0])) for s in labelled} == {"label", "more"}
    for _, learned in labelled:
        assert any("upper" in name for name in learned) and not any("forward_view" in name for name in learned)
    for losses, learned in text:
        assert losses == {f"{n}.{v}" for n in ("label", "more") for v in ("forward", "backward", "future", "past")}
        assert any("forward_view" in name for name in learned) and any("trunk.lower" in name for name in learned)
        assert not any("upper" in name or "primary" in name for name in learned)


def test_batches_are_of_one_source() -> None:
    model = finetune(request_of(epochs=1, valid=[], also=[OtherTask("more", "tagging", sentences(4, seed=3))])).model
    head = model.task
    assert isinstance(head, CrossViewHead)
    texts = [(np.array([0, 7, 8, 9, 0]), np.array([0, 1, 0, 1, 0])), (np.array([0, 0]), np.zeros(2))]
    text = UnlabelledText(texts)
    assert len(text) == 2 and [one.tokens for one in text] == [5, 2] and not text[1].asked.any()
    stock = ManySources([[TaggedExample((0, 5, 6, 0), (1, 2), (0, 1))], []], UnlabelledText(texts[:1]))
    assert len(stock) == 2 and stock.example(0, 1).task is None
    batch = head.make([stock.example(0, 0)])
    assert batch.words_BT is not None and batch.words_BT.tolist() == [[False, True, True, False]]
    assert batch.targets_BT is not None and batch.targets_BT.tolist() == [[-100, 0, 1, -100]]
    with pytest.raises(AssertionError, match="one source"):
        head.make([stock.example(0, 0), Sourced(None, text[0])])


def test_unlabelled_words_are_asked_about_where_labels_would_stand(monkeypatch: pytest.MonkeyPatch) -> None:
    """A word that is read in parts is asked about at its first, as `tagging` asks; every view still sees all parts."""
    request = request_of(unlabelled=["the U.S. sees 东京 don't"] * 4, epochs=1, valid=[])
    stocks: list[ManySources] = []
    real = CrossViewHead.order

    def watched(head: Any, stock: Any, *rest: Any) -> Any:
        stocks.append(stock)
        return real(head, stock, *rest)

    monkeypatch.setattr(CrossViewHead, "order", watched)
    model = finetune(request).model
    one = stocks[0].example(0, len(stocks[0]) - 1)
    tokenizer = model.tokenizer
    pieces = [tokenizer.piece(int(id)) for id in one.example.ids]
    assert pieces[1:-1] == ["the", "U", ".", "S", ".", "sees", "东", "京", "don", "'", "t"]
    asked = [piece for piece, told in zip(pieces, one.example.asked) if told]
    assert asked == ["the", "U", "sees", "东", "京", "don"]
    rows = [TaggedSentence(("the", "U.S.", "sees", "x", "don't"), ("O", "B-N", "O", "O", "O"), "here")]
    (labelled,) = encode(rows, model).examples
    assert [labelled.ids[place] for place in labelled.places][:3] == [one.example.ids[k] for k in (1, 2, 6)]
    head = model.task
    assert isinstance(head, CrossViewHead)
    batch = head.make([one])
    counts = head.counts(batch)
    assert (counts["label.forward"], counts["label.future"], counts["label.past"]) == (6, 5, 5)
    losses = head(model.trunk, batch).losses
    assert {name: loss.count for name, loss in losses.items()} == {n: c for n, c in counts.items() if n in losses}
    whole = head(model.trunk, replace(batch, asked_BT=None)).losses
    assert float(losses["label.forward"].total.detach()) < float(whole["label.forward"].total.detach())


def test_vectors_that_others_learned(tmp_path: Path) -> None:
    lines = ["dog 1 2 3", "1990 4 5 6", "gnu 7 8 9", "u.s. 1 1 1", "Gnu 2 2 2", "cat 0 0 1", "zebra 5 5 5"]
    (tmp_path / "vectors.txt").write_text("\n".join(lines) + "\n")
    tokenizer = Words(["</S>", "<UNK>", "Dog", "dog", "1990", "2001", "the"], {"</S>": 0, "<UNK>": 1}, lower=False)
    grown, matrix = with_vectors(tokenizer, tmp_path / "vectors.txt", 9)
    assert list(grown.pieces[7:]) == ["gnu", "cat"] and matrix.shape == (9, 3), "signs are split off; one of a form"
    assert matrix[[2, 3, 4, 5, 6, 7]].tolist() == [[1, 2, 3], [0, 0, 0], [4, 5, 6], [0, 0, 0], [0, 0, 0], [7, 8, 9]]
    again = with_vectors(grown, tmp_path / "vectors.txt", grown.size)
    assert again[0].fingerprint() == grown.fingerprint() and np.array_equal(again[1], matrix)

    rows = sentences(8)
    shape = tuple(one for one in SHAPE if "vectors" not in one)
    base = new_model(rows, "cvt", sets=shape, task="tagging", vectors=tmp_path / "vectors.txt")
    assert base.model.model_config.vectors == 3 and "zebra" in base.model.tokenizer.pieces
    tuned = finetune(FinetuneRequest(base.model, rows, "tagging", from_scratch=True, epochs=1, sets=SETS)).model
    table = tuned.trunk.words.weight.detach()  # type: ignore[union-attr]
    zebra = base.model.tokenizer.encode("zebra")[0]
    assert table[zebra].tolist() == [5, 5, 5], "not in the rows: as it was given"
    without = finetune(FinetuneRequest(base.model, rows, "tagging", epochs=1, sets=SETS)).model
    assert without.trunk.words.weight[zebra].tolist() == [5, 5, 5], "and whether or not it is called from scratch"  # type: ignore[union-attr]
    dog = base.model.tokenizer.encode("dog")[0]
    moved = (table[dog] - torch.tensor([1.0, 2.0, 3.0])).abs().max()
    assert 0 < moved < 0.2, "in the rows: it goes on learning"
    with refused("--set model.vectors=8", str(tmp_path / "vectors.txt"), "3 dimensions"):
        new_model(rows, "cvt", sets=SHAPE, task="tagging", vectors=tmp_path / "vectors.txt")
    with refused("--vectors", "(cvt)", "gpt"):
        new_model(rows, "gpt", sets=("tokenizer.size=300",), task="tagging", vectors=tmp_path / "vectors.txt")


def test_words_seen_once_teach_the_vector_of_unknown_words() -> None:
    once = TaggedSentence(("the", "Zebra", "sees", "1", "Gnu", "2"), ("O", "B-N", "O", "B-C", "B-N", "B-C"), "here")
    rows = [*sentences(15), once]
    request = request_of(rows, valid=[], epochs=6, unlabelled=[])
    tokenizer = request.base.tokenizer
    zebra, gnu, the = (tokenizer.encode(word)[0] for word in ("Zebra", "Gnu", "the"))
    assert max(zebra, gnu) < tokenizer.size and tokenizer.unknown is not None
    model = finetune(request).model
    head, trunk = model.task, model.trunk
    assert isinstance(head, CrossViewHead) and isinstance(trunk, CvtEncoder)
    torch.manual_seed(step_seed(request.seed, 0, 1 << 20))
    drawn = CVT.build_trunk(TrunkParts(model.model_config, tokenizer)).state_dict()["words.weight"]
    moved = (trunk.words.weight - drawn).abs().amax(1)
    assert moved[tokenizer.unknown] > 1e-3 and moved[[zebra, gnu]].max() > 1e-3

    ids = (0, the, zebra, gnu, the, 0)
    stock = head.stock([[TaggedExample(ids, (1,), (0,)), TaggedExample((0, the, 0), (1,), (0,))]], [])
    assert stock.example(0, 0).seldom == (2, 3) and stock.example(0, 1).seldom == ()
    one = [stock.example(0, 0)]
    assert head.make(one).hidden_BT is None, "nothing is drawn where scores are wanted"
    draws = [head.make(one, Draw(0, epoch, (0,))).hidden_BT for epoch in range(200)]
    again = [head.make(one, Draw(0, epoch, (0,))).hidden_BT for epoch in range(200)]
    assert all(torch.equal(a, b) for a, b in zip(draws, again))  # type: ignore[arg-type]
    part = torch.cat(draws).double().mean(0)  # type: ignore[arg-type]
    assert part[[0, 1, 4, 5]].tolist() == [0] * 4 and 0.4 < part[2] < 0.6 and 0.4 < part[3] < 0.6

    hidden = replace(head.make(one), hidden_BT=torch.tensor([[False, False, True, False, False, False]]))
    unseen = replace(head.make(one), ids_BT=torch.tensor([[0, the, tokenizer.encode("zebrA2")[0], gnu, the, 0]]))
    read, other = trunk._read(hidden), trunk._read(unseen)
    assert read.ids_BT[0, 2] == other.ids_BT[0, 2] == tokenizer.unknown
    spelled, plain = (trunk._read(batch) for batch in (hidden, head.make(one)))
    assert torch.equal(spelled.characters_UC, plain.characters_UC), "the characters are the word's own"


def test_the_vocabulary_has_the_words_of_other_tasks() -> None:
    others = [OtherTask("more", "classification", [Row(("a gnu grazes",), "x", "row 1")])]
    tokenizer = new_model(sentences(4), "cvt", sets=SHAPE, task="tagging", also=others).model.tokenizer
    assert max(tokenizer.encode("gnu grazes")) < tokenizer.size


def test_the_plan_and_info_know_text_and_other_tasks(tmp_path: Path) -> None:
    plans: dict[str, str] = {}

    class Plans(Reporter):
        def plan(self, title: str, lines: list[tuple[str, str]]) -> None:
            plans.update(lines)

    longer = ["the cat sees a very old dog and 42 more " * 2] * 8
    others = [OtherTask("more", "tagging", sentences(6, seed=3))]
    request = request_of(unlabelled=longer, also=others, out=tmp_path / "run", epochs=8)
    run = RunDirectory(tmp_path / "run")
    finetune(request, Plans())
    seen = [row["tokens"] for row in run.metrics() if "tokens" in row]
    names(plans["text"], "8 ", "unlabelled")
    names(plans["beside it"], "more (tagging, 6")
    assert "time" in plans
    said = int(plans["tokens"].split(" in all")[0].split()[-1].replace(",", ""))
    assert said == pytest.approx(seen[-1], rel=0.05), "the stock that is learned from"
    info = summary_of(run)
    names(info, "8 unlabelled", "more (tagging, 3")


def test_what_is_asked_wrongly(tmp_path: Path) -> None:
    rows = [Row(("a", "b"), "x", "row 1"), Row(("a", "c"), "y", "row 2")] * 4
    with refused("cvt", "tagging", "classification", "entailment", "--system"):
        finetune(request_of(rows, "entailment"))
    gpt = new_model(sentences(8), "gpt", task="tagging", sets=("tokenizer.size=300",)).model
    with refused("--unlabelled", "--system cvt", "gpt"):
        finetune(replace(request_of(), base=gpt))
    with refused("--also", "'more'"):
        finetune(request_of(also=[OtherTask("more", "tagging", sentences(4))] * 2))
    with refused("cvt", "foretext finetune FILE --system cvt --task", "--unlabelled TEXT"):
        pretrain(replace(pretrain_request("gpt", write_text(tmp_path), tmp_path / "x"), system="cvt"))


@pytest.mark.parametrize("kind", ["tagging", "classification"])
def test_what_says_how_a_task_is_put_on_a_trunk_is_refused(kind: str) -> None:
    rows: Any = sentences(8)
    if kind == "classification":
        rows = [Row((" ".join(row.words),), "cat" if "cat" in row.words else "other", row.where) for row in rows]
    request = request_of(rows, kind, epochs=1, valid=[])
    for plan in ("ulmfit", "gpt"):
        with refused(f"--plan {plan}", "cvt"):
            finetune(replace(request, plan=plan))
    for setting in ("head=probe", "head=random", "pooling=concat", "reader.cells=8", "model=recurrent"):
        with refused(f"--set transfer.{setting}", "cvt"):
            finetune(replace(request, sets=(*SETS, f"transfer.{setting}")))
    (setting,) = (one for one in settings_in('[transfer]\nhead = "probe"\n', "own.toml") if len(one.names) > 1)
    with refused("own.toml [transfer] head", "cvt"):
        finetune(replace(request, sets=(*SETS, setting)))
    for changes in ({"layers": 1}, {"sets": (*SETS, "transfer.layers=1")}):
        with refused("--layers", "--from-scratch", "--system"):
            finetune(replace(request, **changes))


def test_how_fast_which_layers_learn_is_still_the_users_to_say(tmp_path: Path) -> None:
    request = request_of(epochs=1, valid=[], sets=(*SETS, "transfer.thaw=gradual", "transfer.rate_decay=2.0"))
    with stopping_after(1) as stop, pytest.raises(Interrupted):
        finetune(replace(request, out=tmp_path / "run"), stopping=stop)
    model = load_model(tmp_path / "run")
    assert (model.config.transfer.thaw, model.config.transfer.rate_decay) == ("gradual", 2.0)
    torch.manual_seed(step_seed(request.seed, 0, 1 << 20))
    drawn = CVT.build_trunk(TrunkParts(model.model_config, model.tokenizer)).state_dict()
    assert all(torch.equal(drawn[name], weight) for name, weight in model.trunk.state_dict().items())


def test_a_new_model_takes_rows_as_finetune_does(tmp_path: Path) -> None:
    pairs = [(list(row.words), list(row.tags or ())) for row in sentences(8)]
    chunks, text = tmp_path / "chunks.txt", tmp_path / "text.txt"
    chunks.write_text("\n".join("".join(f"{word} {tag}\n" for word, tag in zip(*pair)) for pair in pairs))
    text.write_text("\n".join(TEXT) + "\n")
    unlabelled = ft.read_sentences(text)
    assert unlabelled == TEXT
    wanted = base_of(sentences(8)).model.tokenizer
    for rows in (chunks, str(chunks), pairs):
        base = ft.new_model(rows, "cvt", sets=SHAPE, task="tagging", more=unlabelled)
        assert base.model.tokenizer.fingerprint() == wanted.fingerprint()
    three = tmp_path / "three.txt"
    three.write_text(chunks.read_text().replace(" B-N", " B-N X").replace(" B-C", " B-C X").replace(" O", " O X"))
    named = ft.new_model(three, "cvt", sets=SHAPE, task="tagging", more=unlabelled, columns={"tag": "2"})
    assert named.model.tokenizer.fingerprint() == wanted.fingerprint()
    others = [ft.OtherTask("more", "tagging", chunks), ft.OtherTask("pairs", "tagging", pairs)]
    both = ft.new_model(chunks, "cvt", sets=SHAPE, task="tagging", more=unlabelled, also=others)
    given: dict[str, Any] = {"valid": pairs[:2], "unlabelled": unlabelled, "also": others, "epochs": 1, "sets": SETS}
    model = both.finetune(chunks, task="tagging", from_scratch=True, **given)
    assert model.model.task_config.also == {"more": "tagging 3", "pairs": "tagging 3"}
    assert model.model.task_config.sentences == len(TEXT) and len(model.predict([["the", "cat"]])[0]) == 2


def test_a_file_name_is_no_list_of_sentences() -> None:
    rows = sentences(8)
    base = base_of(rows)

    def vocabulary(given: Any) -> Any:
        return new_model(rows, "cvt", sets=SHAPE, task="tagging", more=given)

    def taught(given: Any) -> Any:
        return base.finetune(rows, task="tagging", from_scratch=True, epochs=1, sets=SETS, unlabelled=given)

    for name, ask in (("more", vocabulary), ("unlabelled", taught)):
        for given, what in (("text.txt", "file"), (Path("text.txt"), "file"), (5, "int")):
            with refused(name, what, "foretext.read_sentences(FILE)"):
                ask(given)
        with refused(f"{name}[1]", "list"):
            ask(["the cat", ["the", "cat"]])
    with refused("also[0]", "tuple", "foretext.OtherTask(name, kind, rows)"):
        new_model(rows, "cvt", sets=SHAPE, task="tagging", also=[("more", "tagging", rows)])  # type: ignore[list-item]
