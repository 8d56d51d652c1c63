"""lm-evaluation-harness: through our command line it gives what `foretext prompt` gives, and what its own backend gives
for the exported model."""

from __future__ import annotations

import json
import logging
import os
import random
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from cli_harness import MINUTE, ROOT, fails, works
from complaints import names, refused
from tolerance import close, terms_of

from foretext.interop import lm_eval as ours
from foretext.runs.model import load_model

pytest.importorskip("lm_eval")
OFFLINE = {"HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
# There, for each of two layers: norms, projections, 16 numbers of a head, 32 keys twice, 128 inner states. Then logits,
# the softmax over some 400 pieces, and an answer's tokens.
FORWARD = terms_of(2 * (5 * 32 + 16 + 2 * 32 + 128), 32, 400, 32)
TASK = """
task: local
dataset_path: json
dataset_kwargs:
  cache_dir: cache
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


@pytest.fixture
def _one_process(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The harness in this process: no network, none of its own thousands of tasks, no description of the machine, and
    nothing left behind that it sets for a whole process."""
    import datasets.config
    import huggingface_hub.constants
    import lm_eval.evaluator
    import lm_eval.tasks

    monkeypatch.setattr(datasets.config, "HF_DATASETS_OFFLINE", True)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(lm_eval.tasks, "TaskManager", partial(lm_eval.tasks.TaskManager, include_defaults=False))
    monkeypatch.setattr(lm_eval.evaluator, "add_env_info", lambda results: None)
    monkeypatch.setenv("TOKENIZERS_PARALLELISM", "false")
    drawn, log = (random.getstate(), np.random.get_state()), logging.getLogger()
    handlers, level = log.handlers[:], log.level
    yield
    random.setstate(drawn[0])
    np.random.set_state(drawn[1])
    log.handlers[:] = handlers
    log.setLevel(level)


def command(run: Path | str, task: str) -> list[str]:
    """`foretext lm-eval` on a task file in the working directory."""
    Path("tasks").mkdir(exist_ok=True)
    Path("tasks/local.yaml").write_text(task, encoding="utf-8")
    given = ["lm-eval", "--model_args", f"run={run}", "--tasks", "local", "--include_path", "tasks"]
    return [*given, "--output_path", "out", "--log_samples"]


def results() -> tuple[float, list[list[float]]]:
    """The accuracy, and each row's log-likelihoods, in the order of the rows."""
    (summary,) = Path("out").rglob("results_*.json")
    (samples,) = Path("out").rglob("samples_*.jsonl")
    records = [json.loads(line) for line in samples.read_text(encoding="utf-8").splitlines()]
    records.sort(key=lambda record: record["doc_id"])
    likelihoods = [[float(answer[0]) for answer in record["filtered_resps"]] for record in records]
    return json.loads(summary.read_text(encoding="utf-8"))["results"]["local"]["acc,none"], likelihoods


def assert_same(answered: list[dict], accuracy: float, likelihoods: list[list[float]]) -> None:
    ours = [record["scores"]["sum"] for record in answered]
    close(ours, likelihoods, terms=FORWARD, precision=torch.float32)
    hits = [max(range(len(row)), key=row.__getitem__) == record["right"] for row, record in zip(ours, answered)]
    assert accuracy == pytest.approx(sum(hits) / len(hits))


def read_lines(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def test_the_same_file_without_examples(base: Path, files: Path, here: Path) -> None:
    """In a process of its own, as a user without a network would call it."""
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
    environment = {**os.environ, **OFFLINE, "HF_HOME": str(here / "home"), "PYTHONPATH": str(ROOT)}
    started = [sys.executable, "-m", "foretext", *command(base, task)]
    ended = subprocess.run(started, env=environment, capture_output=True, text=True, timeout=300)
    assert ended.returncode == 0, ended.stderr
    assert_same(read_lines(Path("answers.jsonl")), *results())


@pytest.mark.usefixtures("_one_process")
def test_the_same_contexts_with_examples(base: Path, files: Path, here: Path) -> None:
    works("prompt", base, files / "cls.csv", "--shots", 2, "--seeds", 1, "--out", "answers.jsonl")
    answered = read_lines(Path("answers.jsonl"))
    assert len(answered) == 24 and any(record["cut"] for record in answered)
    task = TASK.format(
        rows=here / "answers.jsonl", text="{{context}}", choices="{{answers}}", target="{{right}}", delimiter=""
    )
    works(*command(base, task))
    assert_same(answered, *results())


@pytest.mark.usefixtures("_one_process")
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
    works(*command(base, TASK.format(rows=here / "rows.jsonl", **choices)))
    answered = read_lines(Path("answers.jsonl"))
    assert_same(answered, *results())
    for row, record in zip(rows, answered):  # the context's last piece is scored with both, since one answer ends it
        whole = [len(tokenizer.encode(row["context"] + answer)) for answer in record["answers"]]
        given = len(tokenizer.encode("the film was"))
        assert record["tokens"] == [length - given for length in whole]


def test_its_own_backend_agrees_on_the_exported_model(base: Path, here: Path) -> None:
    from lm_eval.models.huggingface import HFLM

    works("export", base, "--to", "hf", "--out", "exported")
    theirs, model = HFLM(pretrained="exported", device="cpu", batch_size=4, dtype="float64"), load_model(base)
    model.trunk.double()
    pairs = [
        ("the film was", " good"),
        ("the film was ", "good"),
        ("the film was", " bad and dark"),
        ("", "the story"),
        ("a long story of an actor " * 12, " and a film"),
    ]
    wanted = theirs.loglikelihood([SimpleNamespace(args=pair) for pair in pairs], disable_tqdm=True)
    (mine, greedy), (total, best) = zip(*ours.likelihoods(model, pairs, range(len(pairs)))), zip(*wanted)
    assert greedy == best
    close(mine, total, terms=FORWARD)
    texts = ["the film was good", "a long story of an actor in a film " * 10, "x"]
    wanted = theirs.loglikelihood_rolling([SimpleNamespace(args=(text,)) for text in texts], disable_tqdm=True)
    close(ours.rolling(model, texts), wanted, terms=FORWARD)
    asked = [("the film was", {"until": ["\n"], "max_gen_toks": 6}), ("it is", {"until": [" a"], "max_gen_toks": 8})]
    written = theirs.generate_until([SimpleNamespace(args=one) for one in asked], disable_tqdm=True)
    assert ours.written(model, asked) == written


def test_settings_of_generation(base: Path) -> None:
    model = load_model(base)
    short = ours.written(
        model, [("the film", {"until": [], "max_new_tokens": 3, "do_sample": False, "temperature": 0.7})]
    )
    assert short == ours.written(model, [("the film", {"max_gen_toks": 3})])
    with refused("num_beams", "3"):
        ours.written(model, [("the film", {"num_beams": 3})])


@pytest.mark.usefixtures("_one_process")
def test_mistakes(base: Path, clf: Path, files: Path, here: Path) -> None:
    names(fails("lm-eval", "--tasks", "local"), "--model_args run=RUN")
    task = TASK.format(rows="r", text="t", choices="c", target="t", delimiter="")
    names(fails(*command("nowhere", task)), "nowhere")
    names(fails(*command(clf, task)), str(clf), "fine-tuned")
    works("pretrain", files / "text.txt", "--out", "back", "--steps", 1, "--direction", "backward", *MINUTE)
    names(fails(*command("back", task)), "back", "foretext prompt back")
    names(fails(*command(f"{base},dtype=float32", task)), "--model_args", "dtype", "run=RUN")
    names(fails("lm-eval", "--model_args", f"run={base}", "--tasks", "there_is_none"), "there_is_none")
