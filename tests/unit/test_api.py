"""The Python interface by the names that the design gives it."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest
from complaints import names, refused
from systems_under_test import shaken_model
from tolerance import close, doubles

import foretext as ft
from foretext.runs.report import Reporter

SETS = ["model.layers=1", "model.width=32", "model.heads=2", "model.context=16", "tokenizer.size=300"]
TEXTS = [f"the {'good' if i % 2 else 'bad'} film number {i % 9}" for i in range(120)]
PAIRS = [(text, "pos" if i % 2 else "neg") for i, text in enumerate(TEXTS[:24])]


@pytest.fixture(scope="module")
def lm(tmp_path_factory: pytest.TempPathFactory) -> ft.LanguageModel:
    return ft.pretrain(documents=TEXTS, steps=4, out=tmp_path_factory.mktemp("api") / "base", sets=SETS)


@pytest.fixture(scope="module")
def clf(lm: ft.LanguageModel, tmp_path_factory: pytest.TempPathFactory) -> ft.TaskModel:
    return lm.finetune(PAIRS, task="classification", epochs=1, out=tmp_path_factory.mktemp("api") / "clf")


def test_pretrain_reads_files_and_load_gives_the_same_model(lm: ft.LanguageModel, tmp_path: Path) -> None:
    file = tmp_path / "a.txt"
    file.write_text("\n".join(TEXTS), encoding="utf-8")
    made = ft.pretrain(file, steps=2, out=tmp_path / "run", sets=SETS)
    loaded = ft.load(tmp_path / "run")
    assert isinstance(loaded, ft.LanguageModel)
    ids = loaded.model.tokenizer.encode("the film")
    np.testing.assert_array_equal(made.logits(ids), loaded.logits(ids))


def test_logits_of_a_new_model_drop_nothing_out() -> None:
    new = ft.new_model(PAIRS, size="paper", sets=SETS)
    np.testing.assert_array_equal(new.logits([5, 6, 7]), new.logits([5, 6, 7]))


def test_pretrain_without_out_and_with_nothing(tmp_path: Path) -> None:
    made = ft.pretrain(documents=TEXTS, steps=1, sets=SETS)
    assert made.generate("the", max_tokens=2, seed=0) is not None
    with refused("text", "files"):
        ft.pretrain(steps=1)
    with refused("budget", "--minutes", "--steps", "--tokens"):
        ft.pretrain(documents=TEXTS)
    with refused("texts", "documents"):
        ft.pretrain("a.txt", documents=TEXTS, steps=1)
    with refused("exactly", "--minutes", "--steps", "--tokens"):
        ft.pretrain(documents=TEXTS, steps=1, minutes=1.0)


def test_logits(lm: ft.LanguageModel) -> None:
    ids = lm.model.tokenizer.encode("the film")
    logits = lm.logits(ids)
    assert logits.shape == (len(ids), lm.model.tokenizer.size) and logits.dtype == np.float32
    for wrong, parts in (
        ([], ["logits", "1 ", "16 ids", "0"]),
        ([0] * 17, ["logits", "1 ", "16 ids", "17"]),
        ([-1], ["ids", "0 ", f"{lm.model.tokenizer.size - 1}"]),
        ([lm.model.tokenizer.size], ["ids", "0 ", f"{lm.model.tokenizer.size - 1}"]),
    ):
        with refused(*parts):
            lm.logits(wrong)


def test_a_later_token_changes_no_earlier_one() -> None:
    with doubles():
        lm = ft.LanguageModel(shaken_model("gpt", 0.1), Path())
        before, after = lm.logits([1, 2, 3, 4]), lm.logits([1, 2, 3, 5])
    close(after[:-1], before[:-1], terms=1)  # they are handed out in float32
    assert np.abs(after[-1] - before[-1]).max() > 1e-2


def test_perplexity_has_named_fields(lm: ft.LanguageModel) -> None:
    one = lm.perplexity("the film")
    assert one == lm.perplexity(["the film"])
    assert one.per_token > 1 and one.per_word >= one.per_token and one.bits_per_byte > 0
    assert set(one.to_dict()) >= {"per_token", "per_word", "bits_per_byte", "stride", "context", "tokens"}


def test_generate_and_stream(lm: ft.LanguageModel) -> None:
    text = lm.generate("the", max_tokens=8, seed=5)
    assert text == "".join(lm.stream("the", max_tokens=8, seed=5))
    assert lm.generate("the", 8, temperature=0) == lm.generate("the", 8, temperature=0)
    with refused("max_tokens", "1", "0"):
        lm.generate("the", max_tokens=0)


def test_features(lm: ft.LanguageModel) -> None:
    assert lm.features(["a", "b c"]).shape == (2, 32)
    assert lm.features("one text").shape == (1, 32)


def test_finetune_predict_evaluate(lm: ft.LanguageModel, clf: ft.TaskModel, tmp_path: Path) -> None:
    assert clf.labels == ("neg", "pos") and clf.task == "classification"
    predicted = clf.predict(TEXTS[:3])
    assert len(predicted) == 3 and set(predicted) <= {"neg", "pos"}
    assert clf.predict_proba(TEXTS[:3]).shape == (3, 2)
    assert clf.predictions(TEXTS[:3]).values == predicted == clf.predictions(clf.rows(TEXTS[:3])).values
    file = tmp_path / "test.csv"
    with file.open("w", newline="", encoding="utf-8") as out:
        csv.writer(out).writerows([("text", "label"), *PAIRS])
    assert clf.evaluate(file).values == clf.evaluate(PAIRS).values
    loaded = ft.load(clf.path or "")
    assert isinstance(loaded, ft.TaskModel)
    np.testing.assert_array_equal(loaded.predict_proba(TEXTS[:5]), clf.predict_proba(TEXTS[:5]))


def test_finetune_in_memory_leaves_the_base_as_it_was(lm: ft.LanguageModel) -> None:
    ids = lm.model.tokenizer.encode("the film")
    before = lm.logits(ids)
    model = lm.finetune((TEXTS[:24], [i % 2 for i in range(24)]), task="classification", epochs=1)
    assert model.path is None and model.labels == ("0", "1")
    np.testing.assert_array_equal(lm.logits(ids), before)


def test_every_kind_of_task(lm: ft.LanguageModel) -> None:
    half = [("a b", "c d", "yes" if i % 2 else "no") for i in range(12)]
    tagged = lm.finetune([(["a", "cat"], ["O", "N"])] * 6, task="tagging", epochs=1)
    (tags,) = tagged.predictions([["a", "cat"]]).values
    assert [list(tags)] == tagged.predict([["a", "cat"]])
    for task in ("entailment", "similarity"):
        assert set(lm.finetune(half, task=task, epochs=1).predict([("a", "b")])) <= {"yes", "no"}
    choices = [("a", ["b", "c", "d"][: 2 + i % 2], 1 + i % 2) for i in range(12)]
    chooser = lm.finetune(choices, task="choice", epochs=1)
    assert chooser.predict([("a", ["b", "c"])])[0] in (1, 2)
    assert chooser.predict([("a", ["b", "c", "d", "e"])])[0] in (1, 2, 3, 4), "more choices than in training"
    regressor = lm.finetune([("a b", float(i)) for i in range(12)], task="regression", epochs=1)
    assert isinstance(regressor.predict(["a b"])[0], float)
    with refused("regression", "probabilities", "predict"):
        regressor.predict_proba(["a b"])


def test_mistakes_are_user_errors(lm: ft.LanguageModel, clf: ft.TaskModel) -> None:
    with refused("nowhere:", "foretext pretrain", "--out nowhere"):
        ft.load("nowhere")
    with refused("'classificatoin'", "'classification'", "similarity, choice"):
        lm.finetune(PAIRS, task="classificatoin")
    with refused("data:", "rows"):
        lm.finetune([], task="classification")
    with refused("data[0]:", "'meh'", "'neg', 'pos'"):
        clf.evaluate([("x", "meh")])
    with refused("layers", "0 ", "1,", "5"):
        lm.finetune(PAIRS, task="classification", layers=5)
    for ask in (clf.features, clf.word_features):
        with refused(f"{clf.path} ", "fine-tuned", "pre-trained"):
            ask(["the film"])
    with refused("epochs", "1", "0"):
        lm.finetune(PAIRS, task="classification", epochs=0)


def test_values_of_the_wrong_type_are_user_errors(lm: ft.LanguageModel) -> None:
    ids = ("logits", "ids", "lm.model.tokenizer.encode(text)")
    for wrong, parts in (
        (lambda: lm.logits("abc"), ids),  # type: ignore[arg-type]
        (lambda: lm.logits([1.5]), ids),  # type: ignore[list-item]
        (lambda: lm.logits([None]), ids),  # type: ignore[list-item]
        (lambda: lm.logits(None), ids),  # type: ignore[arg-type]
        (lambda: lm.logits(np.zeros((1, 2), dtype=int)), ids),  # type: ignore[arg-type]
        (lambda: lm.perplexity([None]), ("texts[0]", "NoneType")),  # type: ignore[list-item]
        (lambda: lm.perplexity(["a", 5]), ("texts[1]", "int")),  # type: ignore[list-item]
        (lambda: lm.perplexity(None), ("texts ", "NoneType")),  # type: ignore[arg-type]
        (lambda: lm.features([None]), ("texts[0]", "NoneType")),  # type: ignore[list-item]
        (lambda: lm.features(None), ("texts ", "NoneType")),  # type: ignore[arg-type]
        (lambda: lm.generate(None), ("prompt", "NoneType")),  # type: ignore[arg-type]
        (lambda: lm.stream(b"the"), ("prompt", "bytes")),  # type: ignore[arg-type]
        (lambda: lm.generate("a", stop=[None]), ("stop[0]", "NoneType")),  # type: ignore[list-item]
        (lambda: lm.generate("a", stop=None), ("stop ", "NoneType")),  # type: ignore[arg-type]
    ):
        with refused(*parts):
            wrong()
    np.testing.assert_array_equal(lm.logits(np.array([1, 2])), lm.logits([1, 2]))  # type: ignore[arg-type]


def test_one_stop_is_one_string_not_its_letters(lm: ft.LanguageModel) -> None:
    written = lm.generate("the", 8, seed=5)
    assert lm.generate("the", 8, seed=5, stop=written[:1] + "not written") == written


def test_messages_name_what_both_interfaces_have(lm: ft.LanguageModel) -> None:
    for name, value in (("max_tokens", 0), ("temperature", -1), ("seed", -1), ("top_k", -1), ("top_p", 2)):
        with refused(f"{name} ", f"{value}") as caught:
            lm.generate("the", **{name: value})  # type: ignore[arg-type]
        assert str(caught.value).startswith(name), "and not by the option"
    with refused("stride ", "16 tokens", "0") as caught:
        lm.perplexity("the", stride=0)
    assert str(caught.value).startswith("stride")


def test_remembered_columns_are_for_tables_not_for_lists(lm: ft.LanguageModel, tmp_path: Path) -> None:
    file = tmp_path / "rows.csv"
    file.write_text("review,stars\n" + "".join(f"{text},{label}\n" for text, label in PAIRS), encoding="utf-8")
    columns = {"text": "review", "label": "stars"}
    model = lm.finetune(file, task="classification", epochs=1, columns=columns)
    assert model.predict(["the good film"]) == model.predict([{"review": "the good film"}])
    assert model.evaluate(PAIRS).values == model.evaluate(file).values
    own = tmp_path / "own.csv"
    own.write_text("text\nthe good film\n", encoding="utf-8")
    same = model.predict(["the good film"])
    assert model.predict(own) == same == model.predict([{"text": "the good film"}])
    assert model.predict(own, format="none") == same


def test_a_remembered_layout_does_not_bind(lm: ft.LanguageModel, tmp_path: Path) -> None:
    glue, own, other = tmp_path / "a.tsv", tmp_path / "own.csv", tmp_path / "other.csv"
    for file, header, mark in ((glue, "sentence\tlabel", "\t"), (own, "text,label", ","), (other, "review,stars", ",")):
        file.write_text(header + "\n" + "".join(f"{text}{mark}{label}\n" for text, label in PAIRS), encoding="utf-8")
    model = lm.finetune(glue, task="classification", epochs=1, format="sst2")
    wanted, columns = model.evaluate(PAIRS), {"text": "review", "label": "stars"}
    assert model.evaluate(glue) == wanted == model.evaluate(own) == model.evaluate(other, columns=columns)
    assert model.predict(other, columns={"text": "review"}) == model.predict(own)
    np.testing.assert_array_equal(model.predict_proba(own), model.predict_proba(glue))
    assert model.evaluate(own, metric="f1").main == "f1"
    with refused(f"{other}:", "'sentence'", "review,stars", "sst2", "--columns", "--format"):
        model.predict(other)


def test_rows_that_are_cut_are_told_to_a_reporter(clf: ft.TaskModel) -> None:
    said: list[str] = []

    class Listening(Reporter):
        def note(self, text: str) -> None:
            said.append(text)

    clf.predictions(clf.rows(["good film " * 40, "bad"]), reporter=Listening())
    clf.evaluate([("good film " * 40, "pos"), ("bad", "neg")], reporter=Listening())
    assert len(said) == 2
    for text in said:
        names(text, "1 of 2 rows", "16 tokens")


SENTENCES = [
    (text.split(), ["B-Q" if word in ("good", "bad") else "O" for word in text.split()]) for text in TEXTS[:24]
]
ASKED = [(f"which {i % 3}", text, text.split()[1]) for i, text in enumerate(TEXTS[:24])]


def test_tagging_from_python(lm: ft.LanguageModel, tmp_path: Path) -> None:
    tagger = lm.finetune(SENTENCES, task="tagging", epochs=1, out=tmp_path / "run")
    assert tagger.labels == ("B-Q", "O") and tagger.task == "tagging"
    (tags,) = tagger.predict([["the", "good", "film"]])
    assert len(tags) == 3 and set(tags) <= {"B-Q", "O"}
    assert tagger.predict(["the good film"]) == [tags] == ft.load(tmp_path / "run").predict([["the", "good", "film"]])
    file = tmp_path / "test.txt"
    columns = ("".join(f"{word} {tag}\n" for word, tag in zip(*sentence)) for sentence in SENTENCES)
    file.write_text("\n".join(columns), encoding="utf-8")
    assert tagger.evaluate(file).values == tagger.evaluate(SENTENCES).values
    assert tagger.predict(file) == tagger.predict([words for words, _ in SENTENCES])
    assert tagger.evaluate(SENTENCES, metric="recall").main == "recall"
    learned = lm.finetune(file, task="tagging", epochs=1)
    assert learned.predict([["the", "good", "film"]]) == [tags], "a file and the same rows in Python are one"
    with refused("tags", "predictions(data).probabilities"):
        tagger.predict_proba([["the", "film"]])
    with refused("data[0]:", "2 words", "1 tags"):
        tagger.evaluate([(["the", "film"], ["O"])])
    with refused("data[1]:", "tags"):
        lm.finetune([SENTENCES[0], ["the", "film"]], task="tagging")


def test_answers_from_python(lm: ft.LanguageModel, tmp_path: Path) -> None:
    qa = lm.finetune(ASKED, task="span", epochs=1, out=tmp_path / "run", reporter=Reporter())
    passage = "the good film number 3"
    (text,) = qa.predict([("which 1", passage)])
    assert text and text in passage
    assert ft.load(tmp_path / "run").predict([{"question": "which 1", "passage": passage}]) == [text]
    scores = qa.evaluate(ASKED, reporter=Reporter())
    assert scores.rows == 24 and scores.values.keys() == {"f1", "exact_match"}
    (answered,) = qa.predictions(qa.rows([("which 1", passage)]), reporter=Reporter()).values
    assert answered.text == text and answered.candidates[0].text == text
    with refused("data[0]:", "'Ann'", "passage"):
        lm.finetune([("who?", "Tom ran.", "Ann")], task="span")
    with refused("answers", "predictions(data).values"):
        qa.predict_proba([("which 1", passage)])
