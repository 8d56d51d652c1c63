"""Real mistakes: each is one line that names the place and the remedy, exit code 2, and nothing half-written."""

from __future__ import annotations

from pathlib import Path

import pytest
from cli_harness import MINUTE, fails, foretext, labelled, many, works

BUDGET = ["--steps", "2"]

# file → its bytes, and what the complaint says
TEXTS: dict[str, tuple[bytes, str]] = {
    "empty.txt": (b"", "empty.txt: empty"),
    "blank.txt": (b" \n\n\t\n", "blank.txt: blank"),
    "latin.txt": ("a café\n".encode("latin-1") * 9, "latin.txt byte 5: byte 0xe9 is not UTF-8"),
    "nul.txt": (b"a film\n\0 film\n", "nul.txt byte 7: a NUL byte"),
    "short.txt": (b"a b c\n", "fewer than one context of 32"),
    "bad.jsonl": (b'{"text": "a"}\n{oops\n', "bad.jsonl line 2: not valid JSON"),
    "bad.parquet": (b"zzz", "bad.parquet: broken parquet"),
    "twice.csv": (b"text,text\na,b\n", "twice.csv row 1: the column 'text' stands twice in the header; rename one"),
    "twice.tsv": (b"id\ttext\ttext\n1\ta\tb\n", "twice.tsv row 1: the column 'text' stands twice in the header"),
    "cut.txt.gz": (b"zzz", "cut.txt.gz: broken gzip"),
    "picture.png": (b"x", "picture.png: this kind of file is not read"),
}


def refuses_to_pretrain(*arguments: object) -> str:
    """The complaint; and there is no run afterwards, so that the corrected command can follow."""
    complaint = fails("pretrain", *arguments, "--out", "run")
    assert not Path("run").exists(), sorted(Path("run").iterdir())
    return complaint


@pytest.mark.parametrize("name", TEXTS)
def test_text_that_cannot_be_read(name: str, here: Path) -> None:
    data, words = TEXTS[name]
    Path(name).write_bytes(data)
    assert words in refuses_to_pretrain(name, *BUDGET, *MINUTE)


def test_too_little_text(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Path("tiny.txt").write_text("hello")
    with monkeypatch.context() as patch:
        patch.setattr("foretext.train.vocabulary.train_tokenizer", lambda *given, **more: pytest.fail("too late"))
        complaint = refuses_to_pretrain("tiny.txt", *BUDGET, *MINUTE)
    assert "tiny.txt: 5 bytes of text, at most 6 tokens, fewer than one context of 32" in complaint
    assert "more text, or a shorter context: --set model.context=…" in complaint
    Path("same.txt").write_text("the very same words " * 6)
    said = foretext("pretrain", "same.txt", *BUDGET, *MINUTE, "--out", "run")
    assert "text: 1 document (" in said.err
    assert "same.txt: " in said.complaint and "tokens to train on, fewer than one context of 32" in said.complaint
    assert not Path("run").exists()


def test_no_text_at_all(here: Path) -> None:
    Path("folder").mkdir()
    Path("folder/a.png").write_bytes(b"x")
    Path("t.csv").write_text("a,b\n1,hello\n")
    assert "no text files in folder" in refuses_to_pretrain("folder", *BUDGET)
    missing = "missing.txt: no such file or folder; check the path"
    assert missing in refuses_to_pretrain("missing.txt", *BUDGET)
    assert "no file matches this pattern; check it" in refuses_to_pretrain("no*.txt", *BUDGET)
    assert "name the text" in refuses_to_pretrain(*BUDGET)
    Path("same.csv").write_text("b,b\nhello,there\n")
    assert "the column 'b' stands twice" in refuses_to_pretrain("same.csv", "--text-column", "b", *BUDGET)
    assert "no column 'c'" in refuses_to_pretrain("t.csv", "--text-column", "c", *BUDGET)


OPTIONS: list[tuple[list[str], str]] = [
    (["--system", "gtp", *BUDGET], "did you mean gpt?"),
    (["--size", "tinny", *BUDGET], "has no size 'tinny'; it has: tiny, small, paper"),
    (["--set", "model.layer=2", *BUDGET], "did you mean 'layers'?"),
    (["--set", "model.layers=two", *BUDGET], "must be a whole number"),
    (["--set", "nonsense", *BUDGET], "section.key=value"),
    (["--set", "model.heads=3", *BUDGET], "multiple of model.heads"),
    (["--set", "model.context=0", *BUDGET], "model.context must be at least 1"),
    (["--set", "model.heads=0", *BUDGET], "model.heads must be at least 1"),
    (["--set", "model.context=100000", *BUDGET], "fewer than one context of 100000"),
    (["--set", "tokenizer.size=10", *BUDGET], "at least 257"),
    (["--set", "training.batch_size=0", *BUDGET], "batch_size must be at least 1"),
    (["--set", "training.micro_batch=-3", *BUDGET], "micro_batch must be at least 0"),
    (["--set", "training.rate=-1", *BUDGET], "training.rate must be above 0"),
    (["--set", "training.warmup=1", *BUDGET], "training.warmup must be at least 0 and below 1"),
    (["--set", "training.beta2=1", *BUDGET], "training.beta2 must be at least 0 and below 1"),
    (["--set", "training.dropout=1.0", *BUDGET], "training.dropout must be"),
    (["--set", "data.valid_fraction=1.5", *BUDGET], "below 1, not 1.5"),
    (["--set", "data.valid_fraction=0", *BUDGET], "data.valid_fraction must be above 0 and below 1, not 0.0"),
    (["--set", "model.vocabulary=5", *BUDGET], "it follows from the tokenizer; use --set tokenizer.size=…"),
    (["--set", "model.dropout=0.5", *BUDGET], "use --set training.dropout=…"),
    (["--set", "data.starts_from=x", *BUDGET], "use --from RUN"),
    (["--set", "data.inputs=x", *BUDGET], "name the text before the options"),
    (["--set", "budget.steps=4", *BUDGET], "--set budget.steps=4: --minutes, --steps and --tokens say the same"),
    (["--set", "data.errors=replace", "--errors", "strict", *BUDGET], "--set data.errors=replace: --errors says"),
    (["--set", "run.kind=finetune", *BUDGET], "unknown section 'run'"),
    (["--seed", "-4", *BUDGET], "seed must be at least 0"),
    (["--errors", "ignore", *BUDGET], "strict or replace"),
    (["--documents", "x", *BUDGET], "auto, line, blank, file"),
    (["--device", "zzz", *BUDGET], "'zzz' is not available here"),
    (["--vocabulary", ".", *BUDGET], "no published vocabulary"),
    (["--from", "nowhere", *BUDGET], "nowhere: no such run directory"),
    ([], "say how long"),
    (["--steps", "2", "--minutes", "1"], "exactly one of"),
    (["--steps", "-3"], "more than nothing"),
    (["--minutes", "0"], "more than nothing"),
    (["--minutes", "nan"], "more than nothing"),
    (["--minutes", "inf"], "more than nothing and at most 1e+15; inf is not"),
    (["--steps", "x"], "--steps"),
    (["--direction", "up", *BUDGET], "--direction"),
    (["--nonsense", *BUDGET], "--nonsense"),
]


@pytest.mark.parametrize(("options", "words"), OPTIONS, ids=[" ".join(options) or "none" for options, _ in OPTIONS])
def test_options_of_pretrain(options: list[str], words: str, files: Path, here: Path) -> None:
    assert words in refuses_to_pretrain(files / "text.txt", *MINUTE, *options)


def test_usage_is_one_line_too(base: Path) -> None:
    assert "'frobnicate'" in fails("frobnicate")
    assert fails("info").endswith("see foretext info --help")
    assert "--task" in fails("finetune", base, "rows.csv")
    assert "--max-tokens" in fails("generate", base, "--max-tokens", "many")


ROWS: dict[str, tuple[bytes, str]] = {
    "empty.csv": (b"", "empty.csv: the file is empty"),
    "blank.csv": (b" \n\n", "blank.csv: the file is blank"),
    "header.csv": (b"text,label\n", "no rows below the header"),
    "latin.csv": ("text,label\na café,a\n".encode("latin-1"), "byte offset 16"),
    "nul.csv": (b"text,label\na\0b,a\n", "NUL character at byte offset 12"),
    "missing.csv": (labelled(("a", "x"), ("b", "")).encode(), "missing.csv row 3, column 'label'"),
    "one.csv": (many(20, "a").encode(), "have the label 'a'"),
    "ragged.csv": (b"text,label\na,b,c\n", "ragged.csv row 2"),
    "columns.csv": (b"review,stars\na,b\n", '--columns "text=review"'),
    "rows.txt": (b"text,label\na,b\n", "ending '.txt'"),
}


def refuses_to_finetune(*arguments: object, task: str = "classification") -> str:
    complaint = fails("finetune", *arguments, "--task", task, "--out", "run")
    assert not Path("run").exists(), sorted(Path("run").iterdir())
    return complaint


@pytest.mark.parametrize("name", ROWS)
def test_rows_that_cannot_be_read(name: str, base: Path, here: Path) -> None:
    data, words = ROWS[name]
    Path(name).write_bytes(data)
    assert words in refuses_to_finetune(base, name)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--layers", "9"], "layers must be between 0 and 2"),
        (["--layers", "1", "--from-scratch"], "leave one out"),
        (["--lm-weight", "-1"], "lm_weight must be 0 or more"),
        (["--lm-weight", "nan"], "lm_weight must be 0 or more"),
        (["--epochs", "0"], "epochs must be at least 1"),
        (["--seed", "-1"], "seed must be at least 0"),
        (["--format", "sst3"], "no such format; the formats are"),
        (["--format", "sst2"], "no column 'sentence'"),
        (["--columns", "text"], "write field=column"),
        (["--columns", "words=text"], "has no field 'words'"),
        (["--errors", "ignore"], "--errors must be strict or replace"),
        (["--set", "training.batch_size=0"], "batch_size must be at least 1"),
        (["--set", "training.dropout=1.0"], "training.dropout must be"),
        (["--set", "task.kind=choice"], "unknown section 'task'"),
        (["--set", "model.layers=3"], "unknown section 'model'"),
        (["--valid", "nowhere.csv"], "nowhere.csv: no such file"),
        (["--device", "zzz"], "'zzz' is not available here"),
        (["--size", "small"], "--size is for a new model (--system)"),
        (
            ["--lm-weight", "0", "--set", "transfer.lm_weight=1"],
            "--set transfer.lm_weight=1: --lm-weight says the same",
        ),
        (["--layers", "1", "--set", "transfer.layers=2"], "--set transfer.layers=2: --layers says the same"),
    ],
    ids=str,
)
def test_options_of_finetune(options: list[str], words: str, files: Path, base: Path, here: Path) -> None:
    assert words in refuses_to_finetune(base, files / "cls.csv", *options)


def test_runs_of_the_wrong_kind(files: Path, base: Path, clf: Path, here: Path) -> None:
    rows = files / "cls.csv"
    assert "nowhere: no such run directory" in refuses_to_finetune("nowhere", rows)
    assert "is fine-tuned; here a pre-trained run" in refuses_to_finetune(clf, rows)
    assert "name a run and a file of rows" in refuses_to_finetune(rows)
    assert "leave out --system" in refuses_to_finetune(base, rows, "--system", "gpt")
    assert "no system 'bart'" in refuses_to_finetune(rows, "--system", "bart")
    assert "did you mean 'choice'" in refuses_to_finetune(base, rows, task="choise")
    assert "has no task: fine-tune it first" in fails("predict", base, rows)
    assert "is fine-tuned" in fails("generate", clf)
    assert "is fine-tuned" in fails("features", clf, files / "text.txt", "--out", "v.parquet")
    assert "looks like running text without labels" in fails("evaluate", clf, files / "text.txt")
    assert "--from takes a pre-trained run" in refuses_to_pretrain(files / "text.txt", "--from", clf, *BUDGET)
    for verb in (["info"], ["generate"], ["tokens", "x"], ["predict", "--text", "x"], ["evaluate", rows]):
        complaint = fails(verb[0], "nowhere", *verb[1:])
        assert "nowhere: no such run directory; check the path, or make one: foretext pretrain … --out" in complaint
        assert "not a run directory" in fails(verb[0], here, *verb[1:])


def test_labels_that_training_has_not_seen(files: Path, base: Path, clf: Path, here: Path) -> None:
    Path("new.csv").write_text(labelled(("good film", "pos"), ("bad film", "meh")))
    words = "new.csv row 3: the label 'meh' is not one that was trained on; the labels are 'neg', 'pos'"
    assert words in fails("evaluate", clf, "new.csv")
    assert words in refuses_to_finetune(base, files / "cls.csv", "--valid", "new.csv")
    Path("none.csv").write_text(labelled(("good film", "pos"), ("bad film", "")))
    assert "none.csv row 3, column 'label': the label is missing" in fails("evaluate", clf, "none.csv")
    works("predict", clf, "none.csv")  # which needs no labels


def test_other_rows(base: Path, here: Path) -> None:
    Path("score.csv").write_text("text,score\na,1\nb,high\n")
    assert "score.csv row 3, column 'score'" in refuses_to_finetune(base, "score.csv", task="regression")
    Path("choice.csv").write_text("context,choice1,choice2,label\na,b,c,1\nd,e,f,4\n")
    assert "choice.csv row 3, column 'label'" in refuses_to_finetune(base, "choice.csv", task="choice")
    Path("lone.csv").write_text("context,choice1,choice2,label\na,b,,1\n")
    assert "lone.csv row 2: 1 choice(s)" in refuses_to_finetune(base, "lone.csv", task="choice")
    Path("few.csv").write_text("context,choice1,label\na,b,1\n")
    complaint = refuses_to_finetune(base, "few.csv", task="choice")
    assert "few.csv: no column 'choice2'; a choice needs at least two, choice1 and choice2" in complaint
    assert "choice2=choice1" not in complaint


def test_predict(files: Path, clf: Path, here: Path) -> None:
    rows = files / "cls.csv"
    assert "missing.csv: no such file" in fails("predict", clf, "missing.csv")
    assert "nothing to predict" in fails("predict", clf)
    assert "--text 1: the column 'text' is blank" in fails("predict", clf, "--text", " ")
    assert "not both" in fails("predict", clf, rows, "--text", "x")
    assert "standard input: not UTF-8 at byte offset 3" in fails("predict", clf, stdin=b"caf\xe9\n")
    assert "standard input row 3: not JSON" in fails("predict", clf, stdin='\n{"text": "a"}\n{oops')
    assert "the key 'text' stands twice" in fails("predict", clf, stdin='{"text": "a", "text": "b"}')
    assert "the folder nodir does not exist" in fails("predict", clf, rows, "--out", "nodir/x.csv")
    assert "ending '.foo'" in fails("predict", clf, rows, "--out", "x.foo")
    Path("dir.csv").mkdir()
    assert "dir.csv is a folder" in fails("predict", clf, rows, "--out", "dir.csv")
    assert sorted(path.name for path in here.iterdir()) == ["dir.csv"]


def test_pairs_need_pairs(files: Path, base: Path, here: Path) -> None:
    works("finetune", base, files / "ent.csv", "--task", "entailment", "--out", "run", "--epochs", 1)
    assert "--text PREMISE --text HYPOTHESIS, not 1 text" in fails("predict", "run", "--text", "x")
    assert "write JSON lines" in fails("predict", "run", stdin="a line\n")
    assert "standard input row 1: not JSON" in fails("predict", "run", stdin="{oops\n")
    assert "takes two texts, not 1" in fails("tokens", "run", "x")
    works("predict", "run", "--text", "x", "--text", "y")


def test_evaluate_generate_features(files: Path, base: Path, clf: Path, here: Path) -> None:
    text = files / "text.txt"
    assert "foretext: stride must be between 1 and" in fails("evaluate", base, text, "--stride", 0)
    assert "missing.txt: no such file" in fails("evaluate", base, "missing.txt")
    assert "without a task" in fails("evaluate", base, text, "--confusion", "c.png")
    assert "nodir does not exist" in fails("evaluate", clf, files / "cls.csv", "--confusion", "nodir/c.png")
    for option, value in (("stride", 4), ("text-column", "text"), ("documents", "line")):
        words = f"--{option} is for text, and {clf} reads labelled rows"
        assert words in fails("evaluate", clf, files / "cls.csv", f"--{option}", value)
    for option, value in (("columns", "text=text"), ("format", "sst2")):
        assert f"--{option} is for labelled rows, and {base} reads text" in fails(
            "evaluate", base, text, f"--{option}", value
        )
    for option, value in (("max-tokens", 0), ("temperature", -1), ("temperature", "nan"), ("top-p", 2), ("top-k", -2)):
        assert f"foretext: {option.replace('-', '_')} must be" in fails("generate", base, f"--{option}", value)
    assert "foretext: seed must be" in fails("generate", base, "--seed", 2**70)
    assert "ends in .parquet" in fails("features", base, text, "--out", "v.csv")
    assert "nodir does not exist" in fails("features", base, text, "--out", "nodir/v.parquet")
    Path("empty.txt").touch()
    assert "empty.txt: empty" in fails("features", base, "empty.txt", "--out", "v.parquet")
    assert not Path("v.parquet").exists()


def test_arguments_that_are_not_utf8(base: Path, clf: Path) -> None:
    """Python hands bytes that it cannot decode over as halves of surrogate pairs."""
    words = "not UTF-8 at byte offset 3 (byte 0xe9); use a terminal and a locale that are set to UTF-8"
    assert fails("tokens", base, "good", "caf\udce9") == f"foretext: TEXT: {words}"
    from_input = f"{words}, or give it on standard input (--prompt -)"
    assert fails("generate", base, "--prompt", "caf\udce9") == f"foretext: --prompt: {from_input}"
    assert fails("generate", base, "--stop", "caf\udce9") == f"foretext: --stop: {words}"
    replaced = f"{words}, or give it in a file or on standard input with --errors replace"
    assert fails("predict", clf, "--text", "good", "--text", "caf\udce9") == f"foretext: --text: {replaced}"
    assert fails("predict", clf, "x.csv", "--columns", "text=caf\udce9").startswith("foretext: --columns: not UTF-8")


def test_a_regression_has_no_confusion(files: Path, base: Path, here: Path) -> None:
    works("finetune", base, files / "reg.csv", "--task", "regression", "--out", "run", "--epochs", 1)
    assert "its task is regression" in fails("evaluate", "run", files / "reg.csv", "--confusion", "c.png")


def test_out_that_cannot_be(files: Path, here: Path) -> None:
    text = files / "text.txt"
    Path("file").write_text("mine")
    assert "file is not a run directory but a file" in fails("pretrain", text, *BUDGET, *MINUTE, "--out", "file")
    assert "Not a directory" in fails("pretrain", text, *BUDGET, *MINUTE, "--out", "file/run", code=4)
    assert Path("file").read_text() == "mine"
    Path("full").mkdir()
    Path("full/config.toml").write_text("mine")
    assert "config.toml is in the way" in fails("pretrain", text, *BUDGET, *MINUTE, "--out", "full")
    assert [path.name for path in Path("full").iterdir()] == ["config.toml"], "only what was there before"
    assert Path("full/config.toml").read_text() == "mine"


def test_a_finished_run_is_not_overwritten(files: Path, base: Path, clf: Path) -> None:
    assert "holds a run already" in fails("pretrain", files / "text.txt", *BUDGET, "--out", base)
    rows = files / "cls.csv"
    assert "holds a run already" in fails("finetune", base, rows, "--task", "classification", "--out", clf)


def test_a_fault_of_our_own_is_said_in_one_line(base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(run: object) -> dict[str, object]:
        raise KeyError("oops")

    monkeypatch.setattr("foretext.inspection.describe_run", broken)
    said = foretext("info", base, "--json")
    assert said.code == 1 and said.err.startswith("foretext: internal error (KeyError: 'oops')")
    assert len(said.err.splitlines()) == 1
    monkeypatch.setenv("FORETEXT_TRACEBACK", "1")
    with pytest.raises(KeyError):
        foretext("info", base, "--json")
