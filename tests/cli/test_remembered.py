"""What a fine-tuned run remembers of its rows (layout, columns, pairs, metric), and how a user overrides it."""

from __future__ import annotations

import json
from pathlib import Path

import polars
import pytest
from cli_harness import fails, foretext, works
from complaints import names


@pytest.fixture(scope="module")
def sst2(base: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that was fine-tuned on a file of a published layout."""
    folder = tmp_path_factory.mktemp("sst2")
    rows = "".join(f"some {'good' if i % 2 else 'bad'} film {i}\t{i % 2}\n" for i in range(24))
    (folder / "train.tsv").write_text("sentence\tlabel\n" + rows)
    task = ["--task", "classification", "--format", "sst2", "--metric", "matthews"]
    said = works("finetune", base, folder / "train.tsv", *task, "--epochs", 1, "--out", folder / "run")
    assert "matthews" in said.out.splitlines()[2] and "(main)" in said.out.splitlines()[2]
    return folder / "run"


@pytest.fixture(scope="module")
def pairs(base: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that was fine-tuned to score pairs."""
    folder = tmp_path_factory.mktemp("pairs")
    rows = "".join(f"some film {i},a film {i % 5},{i % 5}\n" for i in range(24))
    (folder / "train.csv").write_text("text,text2,score\n" + rows)
    works("finetune", base, folder / "train.csv", "--task", "regression", "--epochs", 1, "--out", folder / "run")
    return folder / "run"


def test_a_run_of_a_layout_reads_other_files(sst2: Path, here: Path) -> None:
    Path("own.csv").write_text('text,label\n"good, film",1\nbad film,0\n')
    Path("review.csv").write_text("review,stars\ngood film,1\nbad film,0\n")
    Path("glue.tsv").write_text('index\tsentence\n7\t"good film\n')
    assert works("predict", sst2, "own.csv").out.startswith("text,label,prediction")
    assert works("predict", sst2, "glue.tsv").out.splitlines()[1].startswith('7,"""good film",')
    columns = ["--columns", "text=review,label=stars"]
    assert works("predict", sst2, "review.csv", "--columns", "text=review").out.startswith("review,stars,prediction")
    assert json.loads(works("evaluate", sst2, "own.csv", "--json").out)["rows"] == 2
    assert json.loads(works("evaluate", sst2, "review.csv", *columns, "--json").out)["rows"] == 2
    works("predict", sst2, "own.csv", "--format", "none")
    said = fails("predict", sst2, "review.csv")
    names(said, "review.csv: ", "column 'sentence'", "review,stars", "sst2", '--columns "text=…"', "--format")
    said = fails("predict", sst2, "review.csv", "--format", "none")
    names(said, "review.csv: ", "column 'text'", "review, stars", '--columns "text=review"')


def test_a_run_of_scored_pairs_reads_both_names_of_a_pair(base: Path, here: Path) -> None:
    """STS-B's own file has no header; other files have one."""
    pairs = [(f"some film {i}", f"a film {i % 5}") for i in range(24)]
    lines = [f"genre\tfile\tyear\t{i}\t{i % 5}.0\t{one}\t{other}\n" for i, (one, other) in enumerate(pairs)]
    Path("sts-train.csv").write_text("".join(lines))
    task = ("--task", "similarity", "--format", "stsb", "--epochs", 1)
    works("finetune", base, "sts-train.csv", *task, "--out", "run")
    Path("sts-test.csv").write_text("".join(lines[:3]))
    own = works("predict", "run", "sts-test.csv").out.splitlines()
    expected = [line.split(",", 5)[5] for line in own]
    assert expected[0] == "text,text2,prediction" and len(expected) == 4
    for first in ("text", "text1"):
        Path("own.csv").write_text(f"{first},text2\n" + "".join(f"{one},{other}\n" for one, other in pairs[:3]))
        said = works("predict", "run", "own.csv").out.splitlines()
        assert said == [f"{first},text2,prediction", *expected[1:]]
        records = [json.dumps({first: one, "text2": other}) + "\n" for one, other in pairs[:3]]
        assert works("predict", "run", stdin="".join(records)).out.splitlines() == said
    Path("own.csv").write_text("sentence1,sentence2\na,b\n")
    said = names(fails("predict", "run", "own.csv"), "own.csv", "stsb", '--columns "text=…,text2=…"', "--format")
    assert said.startswith("foretext: own.csv: "), "what is missing first, then what the layout says"
    works("predict", "run", "own.csv", "--columns", "text=sentence1,text2=sentence2")
    Path("new.csv").write_text("text1,text2,score\n" + "".join(f"{a},{b},{len(a)}\n" for a, b in pairs))
    works("finetune", base, "new.csv", "--task", "regression", "--epochs", 1, "--out", "pairs")
    assert works("predict", "pairs", "new.csv").out.startswith("text1,text2,score,prediction")


def test_the_metric_is_remembered_and_can_be_another(sst2: Path, base: Path, files: Path, here: Path) -> None:
    Path("own.csv").write_text("text,label\ngood film,1\nbad film,0\n")
    assert json.loads(works("evaluate", sst2, "own.csv", "--json").out)["main"] == "matthews"
    assert json.loads(works("evaluate", sst2, "own.csv", "--metric", "f1", "--json").out)["main"] == "f1"
    assert "chosen by   matthews" in works("info", sst2).out
    said = fails("evaluate", sst2, "own.csv", "--metric", "rmse")
    names(said, "--metric rmse: ", "accuracy, f1_macro, matthews, f1")
    names(fails("evaluate", base, files / "text.txt", "--metric", "f1"), "--metric", "task", str(base))
    command = ["finetune", base, files / "ent.csv", "--task", "entailment", "--metric", "f1", "--out", "run"]
    said = names(fails(*command), "--metric f1: ", "accuracy, f1_macro, matthews")
    assert "matthews, f1" not in said, "f1 is of two classes, here are three"
    assert not Path("run").exists()


def test_a_run_of_pairs_takes_two_texts_for_one_row(pairs: Path, here: Path) -> None:
    said = works("predict", pairs, "--text", "some film", "--text", "a film").out.splitlines()
    assert said[0] == "text,text2,prediction" and len(said) == 2
    for count in (1, 3):
        names(fails("predict", pairs, *["--text", "x"] * count), "pairs", "--text TEXT --text TEXT2", f"{count} text")
    names(fails("predict", pairs, stdin="a film\n"), "input: ", "pairs", "JSON")
    assert works("predict", pairs, stdin='{"text": "a", "text2": "b"}\n').out.startswith("text,text2,prediction\n")
    Path("single.csv").write_text("text,score\na film,1\nb film,2\n")
    for verb in ("predict", "evaluate"):
        names(fails(verb, pairs, "single.csv"), "single.csv row 2: ", "pairs", "text2")
    assert "<|delimiter|>" in works("tokens", pairs, "some film", "a film").out
    names(fails("tokens", pairs, "a", "b", "c"), "regression", "two", "3")


def test_a_run_of_single_texts_refuses_pairs(files: Path, base: Path, here: Path) -> None:
    works("finetune", base, files / "reg.csv", "--task", "regression", "--epochs", 1, "--out", "run")
    Path("pairs.csv").write_text("text,text2\na,b\n")
    names(fails("predict", "run", "pairs.csv"), "pairs.csv row 2: ", "two", "single")
    assert len(works("predict", "run", "--text", "a", "--text", "b").out.splitlines()) == 3
    names(fails("tokens", "run", "a", "b", "c"), "regression", "one", "3")
    command = ["finetune", base, files / "reg.csv", "--valid", "valid.csv", "--task", "regression", "--out", "other"]
    Path("valid.csv").write_text("text,text2,score\na,b,1\nc,d,2\n")
    names(fails(*command), "valid.csv row 2: ", "two", "single")


def test_standard_input_has_the_remembered_columns(base: Path, here: Path) -> None:
    Path("rows.csv").write_text("review,stars\n" + "".join(f"some film {i},{i % 2}\n" for i in range(24)))
    columns = ["--columns", "text=review,label=stars"]
    works("finetune", base, "rows.csv", "--task", "classification", *columns, "--out", "run", "--epochs", 1)
    assert works("predict", "run", stdin='{"review": "a film"}\n').out.startswith("review,prediction")
    assert works("predict", "run", stdin='{"text": "a film"}\n').out.startswith("text,prediction")
    assert works("predict", "run", "--columns", "text=words", stdin='{"words": "a"}\n').out.startswith("words,pred")
    said = fails("predict", "run", stdin='{"words": "a film"}\n')
    names(said, "input: ", "column 'review'", '--columns "text=words"')
    names(fails("predict", "run", "--format", "sst2", stdin="a film\n"), "--format", "rows")
    Path("own.csv").write_text("text,label\na film,1\nb film,0\n")
    works("evaluate", "run", "own.csv")
    works("predict", "run", "rows.csv", "--columns", "text=review")


def test_a_layouts_other_columns_reach_the_predictions(sst2: Path, here: Path) -> None:
    Path("test.tsv").write_text("index\tsentence\n7\tgood film\n8\tbad film\n")
    works("predict", sst2, "test.tsv", "--out", "out.csv")
    table = polars.read_csv("out.csv")
    assert table.columns[:3] == ["index", "text", "prediction"] and table["index"].to_list() == [7, 8]


def test_rows_that_are_cut_are_counted(clf: Path, here: Path) -> None:
    Path("long.csv").write_text(f"text,label\n{'good film ' * 60},pos\nbad film,neg\n")
    for verb in ("predict", "evaluate"):
        said = works(verb, clf, "long.csv")
        assert said.note("1 of 2 rows", "context", "32 tokens") not in said.out
    assert "context" not in works("predict", clf, "--text", "good film").err


def test_a_finished_run_still_gives_its_scores_as_json(clf: Path, base: Path, files: Path, here: Path) -> None:
    again = ["finetune", base, files / "cls.csv", "--task", "classification", "--out", clf, "--epochs", 1, "--resume"]
    scores = json.loads(works(*again, "--json").out)
    assert scores["main"] == "accuracy" and scores["rows"] > 0
    assert not works(*again).out
    Path("other.csv").write_text("text,label\n" + "".join(f"film {i},{('neg', 'pos')[i % 2]}\n" for i in range(24)))
    other = foretext(*again[:2], "other.csv", *again[3:], "--json")
    assert other.code == 2
    names(other.complaint, f"{clf}: ", "rows", "--valid", "--hold-out")
