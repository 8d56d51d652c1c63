"""lm-evaluation-harness: through our command line it gives what `foretext prompt` gives, and what its own backend gives
for the exported model."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from cli_harness import ROOT, fails, works

from foretext.errors import UserError
from foretext.interop.lm_eval import Scorer
from foretext.train.saved import load_model

pytest.importorskip("lm_eval")
CLOSE = 1e-3
OFFLINE = {"HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
TASK = """
task: local
dataset_path: json
dataset_kwargs:
  data_files:
    test: {rows}
output_type: multiple_choice
test_split: test
doc_to_text: "{text}"
doc_to_choice: "{choices}"
doc_to_target: "{target}"
target_delimiter: "{delimiter}"
metric_list:
  - metric: acc
"""


def harness(folder: Path, run: Path, task: str, *words: str) -> subprocess.CompletedProcess[str]:
    """`foretext lm-eval` on a local task file, as a user without a network would call it."""
    (folder / "tasks").mkdir(exist_ok=True)
    (folder / "tasks" / "local.yaml").write_text(task, encoding="utf-8")
    command = [sys.executable, "-m", "foretext", "lm-eval", "--model_args", f"run={run}", "--tasks", "local"]
    command += ["--include_path", str(folder / "tasks"), "--output_path", str(folder / "out"), "--log_samples", *words]
    environment = {**os.environ, **OFFLINE, "HF_HOME": str(folder / "home"), "PYTHONPATH": str(ROOT)}
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=300)


def results_of(folder: Path) -> tuple[float, list[list[float]]]:
    """The accuracy, and each row's log-likelihoods, in the order of the rows."""
    (summary,) = (folder / "out").rglob("results_*.json")
    (samples,) = (folder / "out").rglob("samples_*.jsonl")
    records = [json.loads(line) for line in samples.read_text(encoding="utf-8").splitlines()]
    records.sort(key=lambda record: record["doc_id"])
    likelihoods = [[float(answer[0]) for answer in record["filtered_resps"]] for record in records]
    return json.loads(summary.read_text(encoding="utf-8"))["results"]["local"]["acc,none"], likelihoods


def assert_same(answered: list[dict], accuracy: float, likelihoods: list[list[float]]) -> None:
    ours = [record["scores"]["sum"] for record in answered]
    assert len(ours) == len(likelihoods)
    for mine, theirs in zip(ours, likelihoods):
        assert mine == pytest.approx(theirs, abs=CLOSE)
    hits = [max(range(len(row)), key=row.__getitem__) == record["right"] for row, record in zip(ours, answered)]
    assert accuracy == pytest.approx(sum(hits) / len(hits))


def read_lines(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def test_the_same_file_without_examples(base: Path, files: Path, here: Path) -> None:
    rows = [row for row in read_lines(files / "cho.jsonl") if "choice3" not in row]
    Path("rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    works("prompt", base, "rows.jsonl", "--task", "choice", "--out", "answers.jsonl")
    task = TASK.format(
        rows=here / "rows.jsonl",
        text="{{context}}",
        choices="{{[choice1, choice2]}}",
        target="{{label - 1}}",
        delimiter=" ",
    )
    ended = harness(here, base, task)
    assert ended.returncode == 0, ended.stderr
    assert_same(read_lines(Path("answers.jsonl")), *results_of(here))


def test_the_same_contexts_with_examples(base: Path, files: Path, here: Path) -> None:
    works("prompt", base, files / "cls.csv", "--shots", 2, "--seeds", 1, "--out", "answers.jsonl")
    answered = read_lines(Path("answers.jsonl"))
    assert len(answered) == 24 and any(record["cut"] for record in answered)
    task = TASK.format(
        rows=here / "answers.jsonl", text="{{context}}", choices="{{answers}}", target="{{right}}", delimiter=""
    )
    ended = harness(here, base, task)
    assert ended.returncode == 0, ended.stderr
    assert_same(answered, *results_of(here))


def test_answers_that_join_the_context_within_a_token(base: Path, here: Path) -> None:
    tokenizer = load_model(base).tokenizer
    word = next(
        word
        for word in ("great", "lovely", "happy", "bright", "awful", "story")
        if len(tokenizer.encode(" " + word)) == 1
    )
    rows = [
        {"context": f"the film was {word[:cut]}", "choice1": word[cut:] + end, "choice2": "zz", "label": 1 + cut % 2}
        for cut in (1, 2, 3)
        for end in ("", " and dark")
    ]
    Path("rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    works("prompt", base, "rows.jsonl", "--template", "{context}{choice}", "--out", "answers.jsonl")
    choices = {"text": "{{context}}", "choices": "{{[choice1, choice2]}}", "target": "{{label - 1}}", "delimiter": ""}
    ended = harness(here, base, TASK.format(rows=here / "rows.jsonl", **choices))
    assert ended.returncode == 0, ended.stderr
    answered = read_lines(Path("answers.jsonl"))
    assert_same(answered, *results_of(here))
    for row, record in zip(rows, answered):  # the context's last piece is scored with both, since one answer ends it
        whole = [len(tokenizer.encode(row["context"] + answer)) for answer in record["answers"]]
        given = len(tokenizer.encode("the film was"))
        assert record["tokens"] == [length - given for length in whole]


def test_its_own_backend_agrees_on_the_exported_model(base: Path, here: Path) -> None:
    from lm_eval.models.huggingface import HFLM

    works("export", base, "--to", "hf", "--out", "exported")
    theirs, ours = HFLM(pretrained="exported", device="cpu", batch_size=4), Scorer(load_model(base))
    pairs = [
        ("the film was", " good"),
        ("the film was ", "good"),
        ("the film was", " bad and dark"),
        ("", "the story"),
        ("a long story of an actor " * 12, " and a film"),
    ]
    wanted = theirs.loglikelihood([SimpleNamespace(args=pair) for pair in pairs], disable_tqdm=True)
    for (mine, greedy), (total, best) in zip(ours.likelihoods(pairs, range(len(pairs))), wanted):
        assert mine == pytest.approx(total, abs=CLOSE) and greedy == best
    texts = ["the film was good", "a long story of an actor in a film " * 10, "x"]
    wanted = theirs.loglikelihood_rolling([SimpleNamespace(args=(text,)) for text in texts], disable_tqdm=True)
    assert ours.rolling(texts) == pytest.approx(wanted, abs=CLOSE)
    asked = [("the film was", {"until": ["\n"], "max_gen_toks": 6}), ("it is", {"until": [" a"], "max_gen_toks": 8})]
    written = theirs.generate_until([SimpleNamespace(args=one) for one in asked], disable_tqdm=True)
    assert ours.written(asked) == written


def test_settings_of_generation(base: Path) -> None:
    scorer = Scorer(load_model(base))
    short = scorer.written([("the film", {"until": [], "max_new_tokens": 3, "do_sample": False, "temperature": 0.7})])
    assert short == scorer.written([("the film", {"max_gen_toks": 3})])
    with pytest.raises(UserError, match="num_beams is 3, and only 1"):
        scorer.written([("the film", {"num_beams": 3})])


def test_mistakes(base: Path, clf: Path, here: Path) -> None:
    assert "run=" in fails("lm-eval", "--tasks", "local")
    task = TASK.format(rows="r", text="t", choices="c", target="t", delimiter="")
    for run, word in ((Path("nowhere"), "nowhere"), (clf, "fine-tuned")):
        ended = harness(here, run, task)
        assert ended.returncode == 2 and word in ended.stderr and "Traceback" not in ended.stderr
    assert "lm-evaluation-harness: " in fails("lm-eval", "--model_args", f"run={base}", "--tasks", "there_is_none")
    assert "no dtype" in fails("lm-eval", "--model_args", f"run={base},dtype=float32", "--tasks", "arc_easy")
