"""Our models under lm-evaluation-harness: `foretext lm-eval --model_args run=RUN --tasks …` runs its command line with
our class added to its models. Log-likelihoods are those of `foretext prompt`."""

import contextlib
import sys
from collections.abc import Hashable, Sequence
from typing import Any

import torch

from foretext.config import Json
from foretext.errors import UserError, refuse_if
from foretext.evaluate.likelihood import Query, query_of, score_queries
from foretext.evaluate.perplexity import windows_of
from foretext.generate.many import write_in_turn
from foretext.generate.sampling import Sampling, reader_of
from foretext.runs.machine import choose_device
from foretext.runs.model import SavedModel, load_model
from foretext.text.tokenizers.base import END

NAME = "foretext"
_SAID_ELSEWHERE = {"--config", "-C", "--help", "-h"}
_MOST_TOKENS = ("max_gen_toks", "max_new_tokens", "max_tokens", "max_completion_tokens")  # the first one given counts
_DECODING = {*_MOST_TOKENS, "until", "do_sample", "temperature", "top_k", "top_p", "repetition_penalty", "num_beams"}


def run_harness(arguments: Sequence[str]) -> None:
    """Runs the harness's own command line, with our model registered."""
    given = list(arguments)
    if _is_about_a_run(given):
        refuse_if(not any("run=" in word for word in given), "lm-eval needs a run: --model_args run=RUN")
        first = 1 if given[0] == "run" else 0
        given[first:first] = ["--model", NAME]
    try:
        from lm_eval.__main__ import cli_evaluate
    except ImportError:
        raise UserError("lm-evaluation-harness is not installed; pip install 'foretext[lm-eval]'") from None
    register()
    before, sys.argv = sys.argv, ["lm-eval", *given]
    try:
        cli_evaluate()
    except (ValueError, FileNotFoundError) as error:  # the harness's errors for a wrong task, option or file
        raise UserError(f"lm-evaluation-harness: {str(error).strip() or type(error).__name__}") from None
    finally:
        sys.argv = before


def _is_about_a_run(words: Sequence[str]) -> bool:
    """Whether an evaluation is requested without a kind of model."""
    if not words or words[0] in ("ls", "validate") or _SAID_ELSEWHERE.intersection(words):
        return False
    return not any(word == "--model" or word.startswith(("--model=", "-M")) for word in words)


def register() -> None:
    """Adds our class to the harness's models, once."""
    import lm_eval.models  # noqa: F401  its own models, which it loads only while it knows of none
    from lm_eval.api.model import LM
    from lm_eval.api.registry import get_model, register_model

    with contextlib.suppress(KeyError, ValueError):
        get_model(NAME)
        return

    @register_model(NAME)
    class ForetextLM(LM):
        def __init__(
            self,
            run: Any = None,
            device: Any = None,
            batch_size: Any = None,
            max_batch_size: Any = None,
            **others: Any,
        ) -> None:
            super().__init__()
            refuse_if(run is None, "lm-eval needs a run: --model_args run=RUN")
            refuse_if(others, f"--model_args: a run has no {', '.join(others)}; it takes run=RUN")
            self.model = _load(str(run), str(device or "auto"))

        def loglikelihood(self, requests: list[Any], disable_tqdm: bool = False) -> list[tuple[float, bool]]:
            rows = [(request.task_name, request.doc_id) for request in requests]
            return likelihoods(self.model, [request.args for request in requests], rows)

        def loglikelihood_rolling(self, requests: list[Any], disable_tqdm: bool = False) -> list[float]:
            return rolling(self.model, [request.args[0] for request in requests])

        def generate_until(self, requests: list[Any], disable_tqdm: bool = False) -> list[str]:
            return written(self.model, [request.args for request in requests])


def _load(run: str, device: str) -> SavedModel:
    # By default the harness chooses the first CUDA device.
    if device.startswith("cuda") and not torch.cuda.is_available():
        device = "cpu"
    model = load_model(run, choose_device(device))
    refuse_if(model.task is not None, f"{run} is fine-tuned for a task; lm-eval takes a pre-trained run")
    refuse_if(
        model.info.direction == "backward",
        f"{run} reads from right to left, but lm-eval asks from left to right; use foretext prompt {run} FILE",
    )
    return model


def likelihoods(
    model: SavedModel, pairs: Sequence[tuple[str, str]], rows: Sequence[Hashable]
) -> list[tuple[float, bool]]:
    """log P(continuation | context), and whether it is the greedy continuation. `rows`: the row of each pair. The
    harness asks for continuations one by one but compares those of a row, so all continuations of one row and context
    are scored together, with one border."""
    groups: dict[tuple[Hashable, str], list[int]] = {}
    for number, (row, (context, _)) in enumerate(zip(rows, pairs, strict=True)):
        groups.setdefault((row, context), []).append(number)
    queries = [
        query_of(model.tokenizer, context, [pairs[number][1] for number in numbers])
        for (_, context), numbers in groups.items()
    ]
    results: list[tuple[float, bool]] = [(0.0, False)] * len(pairs)
    for numbers, scored in zip(groups.values(), score_queries(model, queries)):
        for number, likelihood in zip(numbers, scored):
            results[number] = (likelihood.total, likelihood.greedy)
    return results


def rolling(model: SavedModel, texts: Sequence[str]) -> list[float]:
    """The log-likelihood of whole texts, in the harness's windows: each token is predicted once, after at least one
    token. The last window is as long as the others, and only its new tokens count. A model that can read on forever has
    one window."""
    _, context = reader_of(model, "the likelihood of a text")
    refuse_if(
        model.tokenizer.end is None,
        f"the likelihood of a whole text needs {END} before it, which this vocabulary does not have",
    )
    queries, owners = [], []
    for number, text in enumerate(texts):
        ids = model.tokenizer.encode(text)
        reach = context or len(ids)
        for window, count in windows_of(model, [ids], reach, reach):
            queries.append(Query(tuple(window[:-count]), (tuple(window[-count:]),)))
            owners.append(number)
    totals = [0.0] * len(texts)
    for owner, scored in zip(owners, score_queries(model, queries)):
        totals[owner] += scored[0].total
    return totals


def written(model: SavedModel, requests: Sequence[tuple[str, Json]]) -> list[str]:
    """Continuations; requests with the same settings are written together."""
    groups: dict[Sampling, list[int]] = {}
    for number, (_, settings) in enumerate(requests):
        groups.setdefault(_sampling(settings), []).append(number)
    texts = [""] * len(requests)
    for sampling, numbers in groups.items():
        continuations = write_in_turn(model, [requests[number][0] for number in numbers], sampling, reserve=True)
        for number, continuation in zip(numbers, continuations):
            texts[number] = continuation.text
    return texts


def _sampling(settings: Json) -> Sampling:
    """The sampling settings of one request, with the harness's meaning."""
    unknown = min(settings.keys() - _DECODING, default=None)
    known, beams = ", ".join(sorted(_DECODING)), settings.get("num_beams", 1)
    refuse_if(unknown is not None, f"generation_kwargs: {unknown} is not supported; supported: {known}")
    refuse_if(beams != 1, f"generation_kwargs: num_beams is {beams!r}, but only 1 is supported")
    most = next((settings[name] for name in _MOST_TOKENS if settings.get(name) is not None), 256)
    temperature = 0.0 if settings.get("do_sample") is False else float(settings.get("temperature") or 0.0)
    until = settings.get("until") or ()
    return Sampling(
        int(most),
        temperature,
        int(settings.get("top_k") or 0),
        float(settings.get("top_p") or 1.0),
        seed=0,
        stop=(until,) if isinstance(until, str) else tuple(until),
        repetition_penalty=float(settings.get("repetition_penalty") or 1.0),
    )
