"""`foretext lm-eval`: lm-evaluation-harness on a run."""

from __future__ import annotations

import typer


def lm_eval(context: typer.Context) -> None:
    """lm-evaluation-harness on a run: --model_args run=RUN --tasks …, as its own command line has them."""
    from foretext.interop.lm_eval import run_harness

    run_harness(context.args)
