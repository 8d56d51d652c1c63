"""Our models under lm-evaluation-harness: `foretext lm-eval --model_args run=RUN --tasks …` hands over to its command
line, with one class more among its models. Log-likelihoods are those of `foretext prompt`."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

from foretext.errors import UserError
from foretext.evaluate.likelihood import Query, score_queries, split_border
from foretext.generate.decode import Sampling
from foretext.generate.many import write_many
from foretext.text.tokenizer import END
from foretext.train.saved import SavedModel, load_model

NAME = "foretext"
_SAID_ELSEWHERE = {"--config", "-C", "--help", "-h"}


def run_harness(arguments: Sequence[str]) -> None:
    """The harness's own command line, with our model registered."""
    try:
        from lm_eval.__main__ import cli_evaluate
    except ImportError:
        raise UserError("lm-evaluation-harness is not installed; pip install 'foretext[lm-eval]'") from None
    register()
    given = list(arguments)
    if given and given[0] not in ("ls", "validate") and not any(_names_model(word) for word in given):
        if not _SAID_ELSEWHERE.intersection(given) and not any("run=" in word for word in given):
            raise UserError("lm-eval needs a run: --model_args run=RUN")
        first = 1 if given[0] == "run" else 0
        given[first:first] = ["--model", NAME]
    sys.argv = ["lm-eval", *given]
    cli_evaluate()


def _names_model(word: str) -> bool:
    return word in ("--model", "-M") or word.startswith("--model=")


def register() -> None:
    """Puts our class among the harness's models."""
    import lm_eval.models  # noqa: F401  its own models, which it loads only while it knows of none
    from lm_eval.api.model import LM
    from lm_eval.api.registry import register_model

    @register_model(NAME)
    class ForetextLM(LM):
        def __init__(self, run: str, device: str = "cpu", batch_size: Any = None, max_batch_size: Any = None) -> None:
            super().__init__()
            self.scorer = Scorer(load_model(run, device))

        def loglikelihood(self, requests: list[Any], disable_tqdm: bool = False) -> list[tuple[float, bool]]:
            return self.scorer.likelihoods([request.args for request in requests])

        def loglikelihood_rolling(self, requests: list[Any], disable_tqdm: bool = False) -> list[float]:
            return self.scorer.rolling([request.args[0] for request in requests])

        def generate_until(self, requests: list[Any], disable_tqdm: bool = False) -> list[str]:
            return self.scorer.written([request.args for request in requests])


class Scorer:
    """What the harness asks for, in our terms."""

    def __init__(self, model: SavedModel) -> None:
        self.model = model

    def likelihoods(self, pairs: Sequence[tuple[str, str]]) -> list[tuple[float, bool]]:
        """log P(continuation | context), and whether it is the greedy one. Continuations of one context are scored
        together, wherever they stand."""
        groups: dict[tuple[int, ...], list[tuple[int, tuple[int, ...]]]] = {}
        for number, (context, continuation) in enumerate(pairs):
            before, after = split_border(self.model.tokenizer, context, continuation)
            groups.setdefault(tuple(before), []).append((number, tuple(after)))
        queries = [Query(context, tuple(after for _, after in members)) for context, members in groups.items()]
        results: list[tuple[float, bool]] = [(0.0, False)] * len(pairs)
        for members, found in zip(groups.values(), score_queries(self.model, queries)):
            for (number, _), likelihood in zip(members, found):
                results[number] = (likelihood.total, likelihood.greedy)
        return results

    def rolling(self, texts: Sequence[str]) -> list[float]:
        """The log-likelihood of whole texts, in windows as the harness cuts them: each token is predicted once, after
        one token at least; the last window is as long as the others, and only what is new in it counts."""
        context = self.model.model_config.context
        queries, owners = [], []
        end = self.model.tokenizer.specials.get(END)
        for number, text in enumerate(texts):
            stream = ([] if end is None else [end]) + self.model.tokenizer.encode(text)
            done = 1
            while done < len(stream):
                upto = min(done + context, len(stream))
                first = max(0, upto - 1 - context) if done > 1 else 0
                queries.append(Query(tuple(stream[first:done]), (tuple(stream[done:upto]),)))
                owners.append(number)
                done = upto
        totals = [0.0] * len(texts)
        for owner, found in zip(owners, score_queries(self.model, queries)):
            totals[owner] += found[0].total
        return totals

    def written(self, requests: Sequence[tuple[str, dict[str, Any]]]) -> list[str]:
        texts = []
        for context, settings in requests:
            stop = settings.get("until") or ()
            temperature = float(settings.get("temperature", 0.0)) if settings.get("do_sample") else 0.0
            sampling = Sampling(
                int(settings.get("max_gen_toks", 256)),
                temperature,
                int(settings.get("top_k", 0)),
                float(settings.get("top_p", 1.0)),
                seed=0,
                stop=(stop,) if isinstance(stop, str) else tuple(stop),
            )
            texts.append(write_many(self.model, [context], sampling)[0].text)
        return texts
