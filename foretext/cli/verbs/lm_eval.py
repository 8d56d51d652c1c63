"""`foretext lm-eval`: lm-evaluation-harness on a run."""

from __future__ import annotations

import typer


def lm_eval(context: typer.Context) -> None:
    """Run lm-evaluation-harness on a run: --model_args run=RUN --tasks … and all its other options."""
    from foretext.interop.lm_eval import run_harness

    run_harness(context.args)
