"""Every verb does what it says, on real files."""

from __future__ import annotations

import json
import re
from pathlib import Path

import polars
import pytest
from cli_harness import KINDS, MINUTE, foretext, works
from complaints import names

from foretext.systems import SYSTEMS


@pytest.mark.parametrize("task", KINDS)
def test_finetune_predict_evaluate_for_every_kind(task: str, files: Path, base: Path, here: Path) -> None:
    rows = files / KINDS[task]
    said = works("finetune", base, rows, "--task", task, "--out", "run", "--epochs", 1)
    main = "pearson" if task == "regression" else "accuracy"
    assert f"{main} " in said.out and "(main)" in said.out, "the best epoch's figures"
    classes = task in ("classification", "entailment", "similarity")
    assert ("precision" in said.out) == classes
    assert (here / "run/confusion.png").exists() == classes
    assert (here / "run/loss.png").exists()
    works("predict", "run", rows, "--out", "out.csv")
    table = polars.read_csv(here / "out.csv")
    assert len(table) == 24 and "prediction" in table.columns
    assert ("probability" in table.columns) == (task != "regression")
    measured = json.loads(works("evaluate", "run", rows, "--json").out)
    assert measured["rows"] == 24 and measured["main"] == main
    assert f"{measured['values'][main]:.4f}" in works("evaluate", "run", rows).out


def test_finetune_with_a_validation_file(files: Path, base: Path, here: Path) -> None:
    rows = files / "cls.csv"
    said = works(
        *("finetune", base, rows, "--task", "classification", "--valid", rows, "--out", "run", "--epochs", 2, "--json")
    )
    scores = json.loads(said.out)
    assert scores["rows"] == 24 and len(scores["per_class"]) == 2
    assert (here / "run/confusion.png").exists()
    evaluated = json.loads(works("evaluate", "run", rows, "--json").out)
    assert evaluated == {name: scores[name] for name in evaluated}, "the run holds the epoch that was shown"


def test_finetune_says_what_is_unequal(base: Path, here: Path) -> None:
    rows = "".join(f"some film {i},{'rare' if i < 3 else 'often'}\n" for i in range(24))
    Path("rows.csv").write_text("text,label\n" + rows)
    said = works("finetune", base, "rows.csv", "--task", "classification", "--out", "run", "--epochs", 1)
    said.note("'often'", "21 of 24 rows", "'rare'", "3", "87.5%")


def test_transfer_options(files: Path, base: Path, here: Path) -> None:
    common = ["finetune", base, files / "cls.csv", "--task", "classification", "--epochs", 1]
    works(*common, "--layers", 1, "--out", "a").note("parameters", "embeddings", "1 block ")
    works(*common, "--from-scratch", "--out", "b").note("parameters", "new")
    said = works(*common, "--lm-weight", 0, "--out", "c").err
    assert re.search(r"loss +label\n", said)
    assert str(base) not in names(works("info", "b").out, "new")


def test_finetune_without_a_run(files: Path, here: Path) -> None:
    rows = files / "cls.csv"
    said = works(
        *("finetune", "--system", "gpt", rows, "--task", "classification", "--out", "run", "--epochs", 1, *MINUTE)
    )
    said.note("parameters", "new")
    assert len(works("predict", "run", rows).out.splitlines()) == 25


def test_odd_columns_are_remembered(base: Path, here: Path) -> None:
    rows = "".join(f"{i % 2};some film {i}\n" for i in range(24))
    Path("rows.csv").write_text("stars;review\n" + rows)
    columns = ["--columns", "text=review,label=stars"]
    works("finetune", base, "rows.csv", "--task", "classification", *columns, "--out", "run", "--epochs", 1)
    works("evaluate", "run", "rows.csv")
    Path("new.csv").write_text("review\na film\n")
    assert works("predict", "run", "new.csv").out.startswith("review,prediction")
    assert works("predict", "run", "--text", "a film").out.startswith("text,prediction")


def test_chinese_through_and_through(here: Path) -> None:
    lines = [f"这部电影{'很好看' if i % 2 else '太糟糕'}，演员{i % 7}也不错。" for i in range(60)]
    Path("文本.txt").write_text("\n".join(lines), encoding="utf-8")
    rows = "".join(f"{line},{'好评' if i % 2 else '差评'}\n" for i, line in enumerate(lines))
    Path("行.csv").write_text("内容,标签\n" + rows, encoding="utf-8")
    works("pretrain", "文本.txt", "--out", "底", "--steps", 2, *MINUTE)
    columns = ["--columns", "text=内容,label=标签"]
    said = works("finetune", "底", "行.csv", "--task", "classification", *columns, "--out", "分", "--epochs", 1)
    assert "好评" in said.out
    assert "p_好评" in works("predict", "分", "--text", "好看").out
    assert "\\xe" in works("tokens", "底", "龘").out, "a character in parts shows its bytes"
    assert json.loads(works("generate", "底", "--prompt", "电影", "--seed", 1, "--json").out)["prompt"] == "电影"


def test_predict_from_text_and_standard_input(clf: Path) -> None:
    said = works("predict", clf, "--text", "good film", "--text", "bad film").out.splitlines()
    assert said[0] == "text,prediction,probability,p_neg,p_pos" and len(said) == 3
    lines = works("predict", clf, "--json", stdin="good film\r\n\nbad, film\n").out.splitlines()
    assert [json.loads(line)["text"] for line in lines] == ["good film", "bad, film"]
    assert works("predict", clf, stdin='{"text": "good film"}\n').out.splitlines()[1] == said[1]


def test_a_text_on_standard_input_may_begin_with_a_brace(clf: Path) -> None:
    """JSON lines are told by the first line, which must be a JSON object as a whole."""
    for first in ("{sic} good film", "{", '{"text": "cut', '"quoted"', "[1]"):
        said = works("predict", clf, "--json", stdin=f"\n{first}\nbad film\n")
        assert [json.loads(line)["text"] for line in said.out.splitlines()] == [first, "bad film"]
        if first.startswith("{"):
            said.note("input", "{", "JSON")
        assert ("JSON" in said.err) == first.startswith("{")
    said = works("predict", clf, "--json", stdin='good film\n{"text": "bad film"}\n')
    assert json.loads(said.out.splitlines()[1])["text"] == '{"text": "bad film"}'


def test_predict_carries_columns_along(clf: Path, here: Path) -> None:
    Path("in.csv").write_text("id,text,label\n7,good film,whatever\n")
    works("predict", clf, "in.csv", "--out", "out.jsonl")
    row = json.loads(Path("out.jsonl").read_text())
    assert (row["id"], row["label"]) == ("7", "whatever") and row["prediction"] in ("neg", "pos")


def test_evaluate_text(files: Path, base: Path) -> None:
    measured = json.loads(works("evaluate", base, files / "text.txt", "--json", "--stride", 5).out)
    assert measured["stride"] == 5 and measured["documents"] == 200 and measured["per_token"] > 1
    said = works("evaluate", base, files / "text.txt").out
    names(said, "stride 16", "bits", "byte")


@pytest.mark.usefixtures("drawn")
def test_evaluate_draws_the_confusion(files: Path, clf: Path, here: Path) -> None:
    works("evaluate", clf, files / "cls.csv", "--confusion", "c.png")
    assert Path("c.png").read_bytes().startswith(b"\x89PNG")


def test_generate(base: Path) -> None:
    options = ["--seed", 1, "--max-tokens", 12]
    text = works("generate", base, "--prompt", "the film", *options).out
    assert text.startswith("the film") and text.endswith("\n")
    assert works("generate", base, "--prompt", "-", *options, stdin="the film").out == text
    written = json.loads(works("generate", base, "--prompt", "the film", *options, "--json").out)
    assert "the film" + written["text"] + "\n" == text
    stop = written["text"][3:5]
    stopped = json.loads(works("generate", base, "--prompt", "the film", *options, "--stop", stop, "--json").out)
    assert stopped["text"] == written["text"][: written["text"].index(stop)]
    assert works("generate", base, "--prompt", "the film " * 40, *options).out, "a prompt longer than the context"


def test_backward(files: Path, here: Path) -> None:
    works("pretrain", files / "text.txt", "--out", "run", "--steps", 2, "--direction", "backward", *MINUTE)
    assert works("generate", "run", "--prompt", "the end", "--seed", 1, "--max-tokens", 5).out.endswith("the end\n")
    assert json.loads(works("info", "run", "--json").out)["run"]["direction"] == "backward"
    assert "right to left" in works("info", "run").out
    works("evaluate", "run", files / "text.txt")
    works("finetune", "run", files / "cls.csv", "--task", "classification", "--out", "task", "--epochs", 1)
    pieces = works("tokens", "task", "good film").out
    assert pieces.index("film") < pieces.index("good"), "each text is read from its end"
    works("predict", "task", "--text", "good film")


def test_tokens_shows_spaces_and_bytes(base: Path, clf: Path) -> None:
    above, below = works("tokens", base, "a film\t中").out.splitlines()
    assert "␣film" in above.split() and "\\t" in above and "\\xe4" in above
    assert len(above.split()) == len(below.split())
    found = json.loads(works("tokens", base, "a film", "--json").out)[0]
    assert "".join(item["piece"] for item in found) == "a film"
    above = works("tokens", clf, "good film").out
    assert above.startswith("<|start|>") and "<|extract|>" in above
    wrapped = works("tokens", base, "a " * 100).out.splitlines()
    assert len(wrapped) > 2 and max(map(len, wrapped)) <= 101


def test_special_spellings_stay_text(base: Path, clf: Path, files: Path, here: Path) -> None:
    from foretext.runs.directory import RunDirectory
    from foretext.runs.model import load_tokenizer
    from foretext.runs.run_config import read_config

    specials = load_tokenizer(RunDirectory(clf), read_config(RunDirectory(clf)).run).specials
    spelt = " ".join(specials)
    ids = [item["id"] for item in json.loads(works("tokens", clf, spelt, "--json").out)[0]]
    inner = ids[1:-1]
    assert len(specials) == 4 and inner and not set(inner) & set(specials.values())
    works("predict", clf, "--text", spelt)
    works("generate", base, "--prompt", spelt, "--max-tokens", 2)
    Path("text.txt").write_text("\n".join(f"a film {i} {spelt}" for i in range(30)))
    works("pretrain", "text.txt", "--out", "run", "--steps", 1, *MINUTE)
    manifest = json.loads(Path("run/tokens/manifest.json").read_text())["splits"]
    assert sum(part["documents"] for part in manifest.values()) == 30


def test_info_systems_version_and_help(base: Path, clf: Path) -> None:
    said = works("info", base).out
    names(said, "2 blocks, width 32, 2 heads, context 32", "finished", "text.txt")
    names(works("info", clf).out, "classification", "'neg', 'pos'")
    assert json.loads(works("info", base, "--json").out)["model"]["layers"] == 2
    assert "Radford" in works("systems").out
    assert json.loads(works("systems", "--json").out)["gpt"]["sizes"] == ["tiny", "small", "paper"]
    assert works("--version").out.count(".") == 2
    for arguments in ([], ["--help"]):
        assert "pretrain" in works(*arguments).out
    assert "--minutes" in works("pretrain", "--help").out


def test_systems_says_what_each_is_made_of() -> None:
    """The comparison of the systems: the same six things of each, for people and for programs."""
    table, shown = json.loads(works("systems", "--json").out), works("systems").out
    assert table.keys() == SYSTEMS.keys() and len(table) == 14
    for name, about in table.items():
        assert list(about) == ["paper", "base", "objective", "direction", "tokenizer", "transfer", "sizes"]
        assert all(about.values()) and about["base"] in shown and about["transfer"] in shown, name
    apart = {(about["base"], about["objective"], about["direction"]) for about in table.values()}
    assert len(apart) == 14, "which says in what they differ"


def test_features(files: Path, base: Path, here: Path) -> None:
    works("features", base, files / "text.txt", "--out", "v.parquet")
    table = polars.read_parquet("v.parquet")
    assert len(table) == 200 and len(table["vector"][0]) == 32
    assert table["vector"].dtype == polars.List(polars.Float32)


def test_features_of_words_say_what_was_left_out(base: Path, here: Path) -> None:
    rows = ("a film", "", "so " * 400)
    Path("rows.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in rows))
    said = works("features", base, "rows.jsonl", "--words", "--layers", "0,1", "--out", "w.parquet")
    said.note("1 rows", "text")
    said.note("1 of 2 texts", "context")
    table = polars.read_parquet("w.parquet")
    assert table["word"].to_list()[:2] == ["a", "film"] and set(table["text"]) == {1, 2}
    assert table["vector"].dtype == polars.List(polars.Float32)


def test_tables_with_marks_and_line_ends(base: Path, here: Path) -> None:
    rows = "".join(f"some film {i},{i % 2}\r\n" for i in range(24))
    Path("rows.csv").write_bytes(b"\xef\xbb\xbftext,label\r\n" + rows.encode())
    works("finetune", base, "rows.csv", "--task", "classification", "--out", "run", "--epochs", 1)
    assert "'0', '1'" in works("info", "run").out


def test_replaced_bytes_are_counted(base: Path, clf: Path, here: Path) -> None:
    Path("latin.txt").write_bytes("a café film\n".encode("latin-1") * 30)
    said = works("pretrain", "latin.txt", "--errors", "replace", "--out", "run", "--steps", 1, *MINUTE)
    said.note("30 bytes", "UTF-8", "replaced")
    works("evaluate", base, "latin.txt", "--errors", "replace").note("30 bytes", "UTF-8", "replaced")
    Path("rows.csv").write_bytes("text\na café film\n".encode("latin-1"))
    works("predict", clf, "rows.csv", "--errors", "replace").note("rows.csv: ", "1", "U+FFFD")
    works("predict", clf, "--errors", "replace", stdin=b"caf\xe9\n").note("input: ", "1", "U+FFFD")


def test_output_is_plain_off_a_terminal(files: Path, here: Path) -> None:
    said = foretext("pretrain", files / "text.txt", "--out", "run", "--steps", 3, *MINUTE)
    assert said.code == 0 and not said.out
    assert not set(said.err) & {"\x1b", "\r", "\b"}
    assert all(line == line.rstrip() for line in said.err.splitlines())
    for word in ("parameters", "time ", "memory ", "disk ", "budget "):
        assert word in said.err, "the plan"


def test_few_and_identical_and_long_rows(base: Path, here: Path) -> None:
    header = "text,label\n"
    Path("few.csv").write_text(header + "".join(f"a film {i},{'ab'[i % 2]}\n" for i in range(6)))
    said = works("finetune", base, "few.csv", "--task", "classification", "--out", "a", "--epochs", 1, "--json")
    said.note("6 rows", "few")
    assert json.loads(said.out) is None
    Path("same.csv").write_text(header + "a film,x\n" * 10 + "a film,y\n" * 10)
    said = works("finetune", base, "same.csv", "--task", "classification", "--out", "b", "--epochs", 1)
    said.note("few", "class")
    Path("long.csv").write_text(header + "".join(f"{i} {'good film ' * 60},{'xy'[i % 2]}\n" for i in range(20)))
    said = works("finetune", base, "long.csv", "--task", "classification", "--out", "c", "--epochs", 1)
    said.note("17 of 17 rows", "context", "32 tokens")
    works("evaluate", "c", "long.csv")
