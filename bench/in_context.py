"""Scoring a choice file with five examples in the context, against lm-evaluation-harness's own `hf` backend.

    python -m bench.in_context --data DIR [--rounds 3] [--rows 200]

COPA's rows, the same model (a GPT-2 of random weights, exported for `transformers`), the same contexts and
continuations; both sides in a process of their own, taking turns. Target: at least 3 times as fast. The log-likelihoods
of both sides are compared first. Needs lm-evaluation-harness (`pip install -c constraints.txt -e '.[lm-eval]'`).
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch

from bench.common import Turns, Worker, arguments_for, medians, need_data, print_head, ratio_cell, table
from foretext.evaluate.in_context import Template, answer_rows, prompts_of
from foretext.interop.hub import export_hub
from foretext.runs.model import SavedModel
from foretext.runs.run_config import ModelSections, RunConfig
from foretext.systems import SYSTEMS
from foretext.systems.base import TrunkParts
from foretext.tasks.files.rows import Row, read_rows
from foretext.text.tokenizers.base import TokenizerConfig, tokenizer_from_json
from foretext.text.tokenizers.training import train_tokenizer

SHOTS = 5
CLOSE = 1e-3


@dataclass(frozen=True)
class Specification:
    rows: list[Row]
    examples: list[Row]
    tokenizer: str
    shape: dict[str, int]
    folder: str  # of the exported model

    def model(self) -> SavedModel:
        system = SYSTEMS["gpt2"]
        tokenizer = tokenizer_from_json(self.tokenizer, "tokenizer.json")
        model = replace(system.sizes["small"].model, vocabulary=tokenizer.size, **self.shape)
        torch.manual_seed(0)
        return SavedModel(
            None,
            ModelSections(RunConfig(system="gpt2"), model),
            system,
            tokenizer,
            system.build_trunk(TrunkParts(model)),
        )


def ours(spec: Specification, turns: Turns) -> None:
    model, template = spec.model(), Template("choice")
    while True:
        turns.begin()
        found = answer_rows(model, template, spec.rows, spec.examples, SHOTS, [0])[0]
        turns.end([likelihood.total for row in found.answers for likelihood in row.likelihoods])


def harness(spec: Specification, turns: Turns) -> None:
    from lm_eval.models.huggingface import HFLM

    model = HFLM(pretrained=spec.folder, device="cpu", batch_size=16)
    requests = [SimpleNamespace(args=pair) for pair in pairs(spec)]
    while True:
        turns.begin()
        found: Any = model.loglikelihood(requests, disable_tqdm=True)
        turns.end([total for total, _ in found])


def pairs(spec: Specification) -> list[tuple[str, str]]:
    """Contexts and continuations as our side has them."""
    asked = prompts_of(Template("choice"), spec.rows, spec.examples, SHOTS, seed=0)
    return [(prompt.whole, answer) for prompt in asked for answer in prompt.answers]


def largest_difference(a: Sequence[float], b: Sequence[float]) -> float:
    assert len(a) == len(b)
    return max(abs(x - y) for x, y in zip(a, b))


def main() -> None:
    parser = arguments_for(__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--rows", type=int, default=200)
    parser.add_argument("--layers", type=int, default=6)
    parser.add_argument("--width", type=int, default=384)
    parser.add_argument("--heads", type=int, default=6)
    given = parser.parse_args()
    data = need_data(given.data)
    rounds, count = (1, 20) if given.quick else (given.rounds, given.rows)
    rows = read_rows(data / "copa" / "copa-dev.xml", "choice", format="copa")
    texts = [text for row in rows for text in row.texts]
    tokenizer = train_tokenizer(texts, TokenizerConfig("byte-bpe", 4000))
    print_head("In-context scoring", ["torch", "transformers", "lm_eval"], given.quick)
    shape = {"layers": given.layers, "width": given.width, "heads": given.heads, "context": 512}
    with tempfile.TemporaryDirectory() as folder:
        spec = Specification(rows[:count], rows[count:], tokenizer.to_json(), shape, f"{folder}/exported")
        export_hub(spec.model(), Path(spec.folder))
        sides = {"ours": Worker(ours, spec), "harness": Worker(harness, spec)}
        seconds: dict[str, list[float]] = {name: [] for name in sides}
        answers: dict[str, list[float]] = {}
        for number in range(rounds + 1):
            for name, worker in sides.items():
                took, answers[name] = worker.ask()
                if number:
                    seconds[name].append(took)
        for worker in sides.values():
            worker.close()
    found = medians(seconds)
    ratio, verdict = ratio_cell(found["harness"] / found["ours"], 3.0)
    apart = largest_difference(answers["ours"], answers["harness"])
    print(f"{shape}; {count} rows, {SHOTS} examples, two choices; median of {rounds} turns")
    verdict_close = "met" if apart < CLOSE else "**missed**"
    print(f"largest difference of a log-likelihood: {apart:.1e} (below {CLOSE:g}: {verdict_close})\n")
    line = ["rows/s", f"{count / found['ours']:,.1f}", f"{count / found['harness']:,.1f}", ratio, verdict]
    print(table(["", "ours", "lm-evaluation-harness, hf", "ratio", "target"], [line]))


if __name__ == "__main__":
    main()
