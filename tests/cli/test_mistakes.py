"""Real mistakes: each is one line that names the place and the remedy, exit code 2, and nothing half-written."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest
from cli_harness import MINUTE, fails, foretext, labelled, many, works
from complaints import names

BUDGET = ["--steps", "2"]

# file → its bytes, and what the complaint names
TEXTS: dict[str, tuple[bytes, tuple[str, ...]]] = {
    "none.txt": (b"", ("none.txt: ", "empty")),
    "spaces.txt": (b" \n\n\t\n", ("spaces.txt: ", "blank")),
    "latin.txt": ("a café\n".encode("latin-1") * 9, ("latin.txt byte 5: ", "0xe9", "UTF-8", "--errors replace")),
    "nul.txt": (b"a film\n\0 film\n", ("nul.txt byte 7: ", "NUL", "--errors replace")),
    "short.txt": (b"a b c\n", ("short.txt: ", "5 bytes", "32", "--set model.context=")),
    "bad.jsonl": (b'{"text": "a"}\n{oops\n', ("bad.jsonl row 2: ", "JSON")),
    "bad.parquet": (b"zzz", ("bad.parquet: ", "parquet", "again")),
    "twice.csv": (b"text,text\na,b\n", ("twice.csv row 1: ", "column 'text'", "twice", "rename")),
    "twice.tsv": (b"id\ttext\ttext\n1\ta\tb\n", ("twice.tsv row 1: ", "column 'text'", "twice", "rename")),
    "cut.txt.gz": (b"zzz", ("cut.txt.gz: ", "gzip", "again")),
    "picture.png": (b"x", ("picture.png: ", ".txt, .jsonl, .csv, .tsv or .parquet", ".gz")),
}


def refuses_to_pretrain(*arguments: object) -> str:
    """The complaint; and there is no run afterwards, so that the corrected command can follow."""
    complaint = fails("pretrain", *arguments, "--out", "run")
    assert not Path("run").exists(), sorted(Path("run").iterdir())
    return complaint


@pytest.mark.parametrize("name", TEXTS)
def test_text_that_cannot_be_read(name: str, here: Path) -> None:
    data, parts = TEXTS[name]
    Path(name).write_bytes(data)
    names(refuses_to_pretrain(name, *BUDGET, *MINUTE), *parts)


def test_too_little_text(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Path("tiny.txt").write_text("hello")
    with monkeypatch.context() as patch:
        patch.setattr(
            "foretext.train.pretraining.run_setup.train_tokenizer", lambda *given, **more: pytest.fail("too late")
        )
        complaint = refuses_to_pretrain("tiny.txt", *BUDGET, *MINUTE)
    names(complaint, "tiny.txt: ", "5 bytes", "6 tokens", "32", "--set model.context=")
    Path("same.txt").write_text("the very same words " * 6)
    said = foretext("pretrain", "same.txt", *BUDGET, *MINUTE, "--out", "run")
    said.note("text: 1 document")
    assert "bytes" not in names(said.complaint, "same.txt: ", "tokens", "32", "--set model.context=")
    assert not Path("run").exists()


def test_no_text_at_all(here: Path) -> None:
    Path("pictures").mkdir()
    Path("pictures/a.png").write_bytes(b"x")
    Path("t.csv").write_text("a,b\n1,hello\n")
    names(refuses_to_pretrain("pictures", *BUDGET), "pictures", ".txt, .jsonl, .csv, .tsv or .parquet", ".gz")
    names(refuses_to_pretrain("missing.txt", *BUDGET), "missing.txt: ", "path")
    names(refuses_to_pretrain("no*.txt", *BUDGET), "no*.txt: ", "pattern")
    names(refuses_to_pretrain(*BUDGET), "files, folders", "globs")
    Path("same.csv").write_text("b,b\nhello,there\n")
    names(refuses_to_pretrain("same.csv", "--text-column", "b", *BUDGET), "same.csv row 1: ", "column 'b'", "twice")
    names(refuses_to_pretrain("t.csv", "--text-column", "c", *BUDGET), "t.csv: ", "column 'c'", "--text-column", "a, b")


OPTIONS: list[tuple[list[str], tuple[str, ...]]] = [
    (["--system", "gtp", *BUDGET], ("'gtp'", "gpt?")),
    (["--size", "tinny", *BUDGET], ("gpt", "size 'tinny'", "tiny, small, paper")),
    (["--set", "model.layer=2", *BUDGET], ("--set model.layer=2: ", "'layer'", "'layers'")),
    (["--set", "model.layers=two", *BUDGET], ("--set model.layers=two: ", "number")),
    (["--set", "nonsense", *BUDGET], ("--set nonsense: ", "section.key=value")),
    (["--set", "model.heads=3", *BUDGET], ("model.width=32", "multiple", "model.heads=3")),
    (["--set", "model.context=0", *BUDGET], ("foretext: model.context ", "0")),
    (["--set", "model.heads=0", *BUDGET], ("foretext: model.heads ", "0")),
    (["--set", "model.context=100000", *BUDGET], ("text.txt: ", "100000", "--set model.context=")),
    (["--set", "tokenizer.size=10", *BUDGET], ("tokenizer.size=10: ", "byte-bpe", "257")),
    (["--set", "training.batch_size=0", *BUDGET], ("training.batch_size", "0")),
    (["--set", "training.micro_batch=-3", *BUDGET], ("training.micro_batch", "-3")),
    (["--set", "training.rate=-1", *BUDGET], ("training.rate", "-1.0")),
    (["--set", "training.warmup=1", *BUDGET], ("training.warmup", "1.0")),
    (["--set", "training.beta2=1", *BUDGET], ("training.beta2", "1.0")),
    (["--set", "training.dropout=1.0", *BUDGET], ("training.dropout", "1.0")),
    (["--set", "data.valid_fraction=1.5", *BUDGET], ("data.valid_fraction", "1.5")),
    (["--set", "data.valid_fraction=0", *BUDGET], ("data.valid_fraction", "0.0")),
    (["--set", "model.vocabulary=5", *BUDGET], ("--set model.vocabulary=5: ", "--set tokenizer.size=")),
    (["--set", "model.dropout=0.5", *BUDGET], ("--set model.dropout=0.5: ", "--set training.dropout=")),
    (["--set", "data.starts_from=x", *BUDGET], ("--set data.starts_from=x: ", "--from RUN")),
    (["--set", "data.inputs=x", *BUDGET], ("--set data.inputs=x: ", "text")),
    (["--set", "budget.steps=4", *BUDGET], ("--set budget.steps=4: ", "--minutes, --steps", "--tokens")),
    (["--set", "data.errors=replace", "--errors", "strict", *BUDGET], ("--set data.errors=replace: --errors",)),
    (["--set", "run.kind=finetune", *BUDGET], ("--set run.kind=finetune: ", "section 'run'", "model, tokenizer")),
    (["--seed", "-4", *BUDGET], ("seed", "-4")),
    (["--errors", "ignore", *BUDGET], ("errors", "strict", "replace", "'ignore'")),
    (["--documents", "x", *BUDGET], ("documents", "auto, line, blank, file", "'x'")),
    (["--device", "zzz", *BUDGET], ("'zzz'", "--device cpu")),
    (["--vocabulary", ".", *BUDGET], (".: ", "encoder_bpe_40000.json", "vocab.bpe", "vocab.txt", "spiece.model")),
    (["--from", "nowhere", *BUDGET], ("nowhere: ", "foretext pretrain … --out nowhere")),
    ([], ("budget", "--minutes, --steps", "--tokens")),
    (["--steps", "2", "--minutes", "1"], ("one", "--minutes, --steps", "--tokens")),
    (["--steps", "-3"], ("--steps -3: ", "1e+15")),
    (["--minutes", "0"], ("--minutes 0.0: ", "1e+15")),
    (["--minutes", "nan"], ("--minutes nan: ", "1e+15")),
    (["--minutes", "inf"], ("--minutes inf: ", "1e+15")),
    (["--steps", "x"], ("'--steps'", "foretext pretrain --help")),
    (["--direction", "up", *BUDGET], ("'--direction'", "'up'", "'forward', 'backward'")),
    (["--nonsense", *BUDGET], ("--nonsense", "foretext pretrain --help")),
]


@pytest.mark.parametrize(("options", "parts"), OPTIONS, ids=[" ".join(options) or "none" for options, _ in OPTIONS])
def test_options_of_pretrain(options: list[str], parts: tuple[str, ...], files: Path, here: Path) -> None:
    names(refuses_to_pretrain(files / "text.txt", *MINUTE, *options), *parts)


def test_usage_is_one_line_too(base: Path) -> None:
    names(fails("frobnicate"), "'frobnicate'", "foretext --help")
    names(fails("info"), "'run'", "foretext info --help")
    names(fails("finetune", base, "rows.csv"), "--task classification, entailment")
    names(fails("generate", base, "--max-tokens", "many"), "'--max-tokens'", "foretext generate --help")


ROWS: dict[str, tuple[bytes, tuple[str, ...]]] = {
    "none.csv": (b"", ("none.csv: ", "empty")),
    "spaces.csv": (b" \n\n", ("spaces.csv: ", "blank")),
    "top.csv": (b"text,label\n", ("top.csv: ", "header", "(text, label)")),
    "latin.csv": ("text,label\na café,a\n".encode("latin-1"), ("latin.csv byte 16: ", "0xe9", "--errors replace")),
    "nul.csv": (b"text,label\na\0b,a\n", ("nul.csv byte 12: ", "NUL", "--errors replace")),
    "missing.csv": (
        labelled(("a", "x"), ("b", "")).encode(),
        ("missing.csv row 3, column 'label': ", "missing", "'x'"),
    ),
    "one.csv": (many(20, "a").encode(), ("17 rows", "label 'a'", "one.csv row 21")),
    "ragged.csv": (b"text,label\na,b,c\n", ("ragged.csv row 2: ", "3 cells", "2 (text, label)")),
    "columns.csv": (b"review,stars\na,b\n", ("columns.csv: ", "column 'text'", '--columns "text=review"')),
    "rows.txt": (b"text,label\na,b\n", ("rows.txt: ", "'.txt'", ".csv, .tsv, .jsonl, .parquet", "--format")),
}


def refuses_to_finetune(*arguments: object, task: str = "classification") -> str:
    complaint = fails("finetune", *arguments, "--task", task, "--out", "run")
    assert not Path("run").exists(), sorted(Path("run").iterdir())
    return complaint


@pytest.mark.parametrize("name", ROWS)
def test_rows_that_cannot_be_read(name: str, base: Path, here: Path) -> None:
    data, parts = ROWS[name]
    Path(name).write_bytes(data)
    names(refuses_to_finetune(base, name), *parts)


TRANSFER: list[tuple[list[str], tuple[str, ...]]] = [
    (["--layers", "9"], ("layers", "2", "9")),
    (["--layers", "1", "--from-scratch"], ("--layers", "--from-scratch", "--system")),
    (["--lm-weight", "-1"], ("lm_weight", "-1.0")),
    (["--lm-weight", "nan"], ("lm_weight", "nan")),
    (["--epochs", "0"], ("epochs", "0")),
    (["--seed", "-1"], ("seed", "-1")),
    (["--format", "sst3"], ("--format sst3: ", "sst2, storycloze")),
    (["--format", "sst2"], ("cls.csv: ", "column 'sentence'", "text,label", "--format")),
    (["--columns", "text"], ("--columns text: ", "field=column")),
    (["--columns", "words=text"], ("--columns words=…: ", "field 'words'", "text, label")),
    (["--errors", "ignore"], ("--errors", "strict", "replace", "'ignore'")),
    (["--set", "training.batch_size=0"], ("training.batch_size", "0")),
    (["--set", "training.dropout=1.0"], ("training.dropout", "1.0")),
    (["--set", "task.kind=choice"], ("--set task.kind=choice: ", "section 'task'", "'transfer'")),
    (["--set", "model.layers=3"], ("--set model.layers=3: ", "section 'model'", "training, transfer")),
    (["--valid", "nowhere.csv"], ("nowhere.csv: ", "path")),
    (["--device", "zzz"], ("'zzz'", "--device cpu")),
    (["--size", "small"], ("--size", "--system", "base")),
    (["--lm-weight", "0", "--set", "transfer.lm_weight=1"], ("--set transfer.lm_weight=1: --lm-weight",)),
    (["--layers", "1", "--set", "transfer.layers=2"], ("--set transfer.layers=2: --layers",)),
]


@pytest.mark.parametrize(("options", "parts"), TRANSFER, ids=[" ".join(options) for options, _ in TRANSFER])
def test_options_of_finetune(options: list[str], parts: tuple[str, ...], files: Path, base: Path, here: Path) -> None:
    names(refuses_to_finetune(base, files / "cls.csv", *options), *parts)


def test_runs_of_the_wrong_kind(files: Path, base: Path, clf: Path, here: Path) -> None:
    rows = files / "cls.csv"
    nowhere = ("nowhere: ", "foretext pretrain … --out nowhere")
    names(refuses_to_finetune("nowhere", rows), *nowhere)
    names(refuses_to_finetune(clf, rows), str(clf), "fine-tuned", "pre-trained")
    names(refuses_to_finetune(rows), f"only {rows}", "--system NAME")
    assert "NAME" not in names(refuses_to_finetune(base, rows, "--system", "gpt"), "--system", "rows")
    names(refuses_to_finetune(rows, "--system", "bart"), "system 'bart'", "bert?")
    names(refuses_to_finetune(base, rows, task="choise"), "task 'choise'", "'choice'")
    names(fails("predict", base, rows), str(base), f"foretext finetune {base}", "--task")
    names(fails("generate", clf), str(clf), "fine-tuned", "pre-trained")
    names(fails("features", clf, files / "text.txt", "--out", "v.parquet"), str(clf), "fine-tuned", "vectors")
    names(fails("evaluate", clf, files / "text.txt"), "text.txt: ", "labels", "--format", "--unlabelled")
    names(refuses_to_pretrain(files / "text.txt", "--from", clf, *BUDGET), str(clf), "fine-tuned", "--from")
    for verb in (["info"], ["generate"], ["tokens", "x"], ["predict", "--text", "x"], ["evaluate", rows]):
        names(fails(verb[0], "nowhere", *verb[1:]), *nowhere)
        names(fails(verb[0], here, *verb[1:]), str(here), "manifest.json")


def test_labels_that_training_has_not_seen(files: Path, base: Path, clf: Path, here: Path) -> None:
    Path("new.csv").write_text(labelled(("good film", "pos"), ("bad film", "meh")))
    for said in (fails("evaluate", clf, "new.csv"), refuses_to_finetune(base, files / "cls.csv", "--valid", "new.csv")):
        names(said, "new.csv row 3: ", "label 'meh'", "'neg', 'pos'")
    Path("none.csv").write_text(labelled(("good film", "pos"), ("bad film", "")))
    names(fails("evaluate", clf, "none.csv"), "none.csv row 3, column 'label': ", "missing", "'pos'")
    works("predict", clf, "none.csv")  # which needs no labels


def test_other_rows(base: Path, here: Path) -> None:
    Path("score.csv").write_text("text,score\na,1\nb,high\n")
    said = refuses_to_finetune(base, "score.csv", task="regression")
    names(said, "score.csv row 3, column 'score': ", "'high'")
    Path("choice.csv").write_text("context,choice1,choice2,label\na,b,c,1\nd,e,f,4\n")
    said = refuses_to_finetune(base, "choice.csv", task="choice")
    names(said, "choice.csv row 3, column 'label': ", "'4'", "2")
    Path("lone.csv").write_text("context,choice1,choice2,label\na,b,,1\n")
    names(refuses_to_finetune(base, "lone.csv", task="choice"), "lone.csv row 2: ", "1 choice", "choice1", "choice2")
    Path("few.csv").write_text("context,choice1,label\na,b,1\n")
    said = refuses_to_finetune(base, "few.csv", task="choice")
    names(said, "few.csv: ", "column 'choice2'", "context, choice1, label", "--columns choice2=")
    assert "choice2=choice1" not in said


def test_predict(files: Path, clf: Path, here: Path) -> None:
    rows = files / "cls.csv"
    names(fails("predict", clf, "missing.csv"), "missing.csv: ", "path")
    names(fails("predict", clf), "nothing", "--text", "input")
    names(fails("predict", clf, "--text", " "), "--text 1: ", "column 'text'", "blank")
    names(fails("predict", clf, rows, "--text", "x"), "--text", "rows", "both")
    names(fails("predict", clf, stdin=b"caf\xe9\n"), "input ", "byte 3: ", "UTF-8", "--errors replace")
    names(fails("predict", clf, stdin='\n{"text": "a"}\n{oops'), "input", "row 3: ", "JSON")
    names(fails("predict", clf, stdin='{"text": "a", "text": "b"}'), "input", "row 1: ", "key 'text'", "twice")
    names(fails("predict", clf, rows, "--out", "nodir/x.csv"), "nodir/x.csv: ", "nodir ")
    names(fails("predict", clf, rows, "--out", "x.foo"), "x.foo: ", "'.foo'", ".csv, .tsv, .jsonl, .parquet")
    Path("dir.csv").mkdir()
    names(fails("predict", clf, rows, "--out", "dir.csv"), "dir.csv", "folder")
    assert sorted(path.name for path in here.iterdir()) == ["dir.csv"]


def test_pairs_need_pairs(files: Path, base: Path, here: Path) -> None:
    works("finetune", base, files / "ent.csv", "--task", "entailment", "--out", "run", "--epochs", 1)
    names(fails("predict", "run", "--text", "x"), "entailment", "--text PREMISE --text HYPOTHESIS", "1 text")
    names(fails("predict", "run", stdin="a line\n"), "input: ", "entailment", "JSON")
    names(fails("predict", "run", stdin="{oops\n"), "input", "row 1: ", "JSON")
    names(fails("tokens", "run", "x"), "entailment", "two", "1")
    works("predict", "run", "--text", "x", "--text", "y")


def test_evaluate_generate_features(files: Path, base: Path, clf: Path, here: Path) -> None:
    text = files / "text.txt"
    names(fails("evaluate", base, text, "--stride", 0), "stride", "32", "0")
    names(fails("evaluate", base, "missing.txt"), "missing.txt: ", "path")
    names(fails("evaluate", base, text, "--confusion", "c.png"), "--confusion", str(base), "task")
    said = fails("evaluate", clf, files / "cls.csv", "--confusion", "nodir/c.png")
    names(said, "nodir/c.png: ", "nodir ")
    for option, value in (("stride", 4), ("text-column", "text"), ("documents", "line")):
        names(fails("evaluate", clf, files / "cls.csv", f"--{option}", value), f"--{option}", str(clf), "rows")
    for option, value in (("columns", "text=text"), ("format", "sst2")):
        names(fails("evaluate", base, text, f"--{option}", value), f"--{option}", str(base), "rows")
    for option, value in (("max-tokens", 0), ("temperature", -1), ("temperature", "nan"), ("top-p", 2), ("top-k", -2)):
        said = fails("generate", base, f"--{option}", value)
        names(said, f"foretext: {option.replace('-', '_')} ", str(value))
    names(fails("generate", base, "--seed", 2**70), "foretext: seed ", str(2**70))
    names(fails("features", base, text, "--out", "v.csv"), "v.csv: ", ".parquet")
    names(fails("features", base, text, "--out", "nodir/v.parquet"), "nodir/v.parquet: ", "nodir ")
    Path("none.txt").touch()
    names(fails("features", base, "none.txt", "--out", "v.parquet"), "none.txt: ", "empty")
    assert not Path("v.parquet").exists()


def test_arguments_that_are_not_utf8(base: Path, clf: Path) -> None:
    """Python hands bytes that it cannot decode over as halves of surrogate pairs."""
    wrong = "caf\udce9"
    for command, option, remedy in (
        (["tokens", base, "good", wrong], "TEXT", ()),
        (["generate", base, "--prompt", wrong], "--prompt", ("(--prompt -)",)),
        (["generate", base, "--stop", wrong], "--stop", ()),
        (["predict", clf, "--text", "good", "--text", wrong], "--text", ("--errors replace",)),
    ):
        said = names(fails(*command), f"foretext: {option}: ", "UTF-8", "offset 3", "0xe9", "locale", *remedy)
        assert ("input" in said) == bool(remedy)
    names(fails("predict", clf, "x.csv", "--columns", f"text={wrong}"), "foretext: --columns: ", "UTF-8", "offset 8")


def test_a_regression_has_no_confusion(files: Path, base: Path, here: Path) -> None:
    works("finetune", base, files / "reg.csv", "--task", "regression", "--out", "run", "--epochs", 1)
    names(fails("evaluate", "run", files / "reg.csv", "--confusion", "c.png"), "--confusion", "run", "regression")


def test_out_that_cannot_be(files: Path, here: Path) -> None:
    text = files / "text.txt"
    Path("file").write_text("mine")
    names(fails("pretrain", text, *BUDGET, *MINUTE, "--out", "file"), "foretext: file ", "directory")
    said = fails("pretrain", text, *BUDGET, *MINUTE, "--out", "file/run", code=4)
    assert os.strerror(errno.ENOTDIR) in names(said, "file/run: ")
    assert Path("file").read_text() == "mine"
    Path("full").mkdir()
    Path("full/config.toml").write_text("mine")
    names(fails("pretrain", text, *BUDGET, *MINUTE, "--out", "full"), "full/config.toml", "--out")
    assert [path.name for path in Path("full").iterdir()] == ["config.toml"], "only what was there before"
    assert Path("full/config.toml").read_text() == "mine"


def test_a_finished_run_is_not_overwritten(files: Path, base: Path, clf: Path) -> None:
    names(fails("pretrain", files / "text.txt", *BUDGET, "--out", base), str(base), "--resume", "--out")
    rows = files / "cls.csv"
    names(fails("finetune", base, rows, "--task", "classification", "--out", clf), str(clf), "--resume", "--out")


def test_a_fault_of_our_own_is_said_in_one_line(base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(run: object) -> dict[str, object]:
        raise KeyError("oops")

    monkeypatch.setattr("foretext.runs.inspection.describe_run", broken)
    said = foretext("info", base, "--json")
    assert said.code == 1 and len(said.err.splitlines()) == 1
    names(said.err, "foretext: ", "(KeyError: 'oops')", "FORETEXT_TRACEBACK=1")
    monkeypatch.setenv("FORETEXT_TRACEBACK", "1")
    with pytest.raises(KeyError):
        foretext("info", base, "--json")
