"""A pre-training run while it is set up: what is asked, what has been made of it, and what is kept before training."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

import numpy as np

from foretext.errors import Interrupted, UserError
from foretext.runs.budget import POSITION
from foretext.runs.directory import RunDirectory, RunWriter
from foretext.runs.model import config_text, load_tokenizer, open_run, read_config
from foretext.runs.report import Reporter
from foretext.text.corpus.token_shards import read_manifest
from foretext.text.tokenizers.base import Tokenizer
from foretext.train.pretraining.pretrain_request import PretrainRequest
from foretext.train.signals import StopRequest
from foretext.train.starting_over import TOKENS


@dataclass
class Preparing:
    request: PretrainRequest
    sections: dict[str, Any]
    reporter: Reporter
    stopping: StopRequest
    started_model: Any = None
    tokenizer: Tokenizer | None = None
    vectors: np.ndarray | None = None  # of the vocabulary's words, where a trunk begins with such

    def progress(self, title: str, done: int, total: int) -> None:
        """Before training a signal ends the work at once: there is nothing to save yet."""
        self.reporter.work(title, done, total)
        if self.stopping.requested is not None:
            run = open_run(self.request.out)
            raise Interrupted(self.stopping.requested, str(run.path) if run.exists() else None)

    def take_up(self, run: RunDirectory) -> bool:
        """The vocabulary of a run that was begun before; False if there is none."""
        if not (run.has("tokenizer.json") and run.has("config.toml")):
            return False
        kept = read_config(run)
        self.sections["run"] = dataclasses.replace(self.sections["run"], tokenizer=kept["run"].tokenizer)
        self.sections["model"] = dataclasses.replace(self.sections["model"], vocabulary=kept["model"].vocabulary)
        self.tokenizer = load_tokenizer(run, self.sections["run"])
        return True

    def name_vocabulary(self, tokenizer: Tokenizer) -> None:
        """A new one. UserError if no trunk can have this shape with so many pieces, which is known only now."""
        self.tokenizer = tokenizer
        self.sections["run"] = dataclasses.replace(self.sections["run"], tokenizer=tokenizer.fingerprint())
        self.sections["model"] = dataclasses.replace(self.sections["model"], vocabulary=tokenizer.size)
        self.sections["model"].check()

    def has_shards(self, run: RunDirectory) -> bool:
        """Shards without a configuration beside them are of an unknown text; with a checkpoint they must not change."""
        return (run.path / TOKENS / "manifest.json").exists() or run.has(POSITION)

    def keep(self, run: RunDirectory, writer: RunWriter) -> None:
        """Configuration and vocabulary, so that going on does not make them again."""
        assert self.tokenizer is not None
        folder = run.path / TOKENS
        if read_manifest(folder).tokenizer != self.tokenizer.fingerprint():
            raise UserError(f"{folder}: made with another tokenizer; put the right folder back, or start a new run")
        files_now = {"config.toml": config_text(self.sections).encode()}
        if not run.has("tokenizer.json"):
            files_now["tokenizer.json"] = self.tokenizer.to_json().encode()
        writer.commit(files_now)
