"""The vocabulary of a new model: of the kind that its system has, with the specials that it needs."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from foretext.systems.base import System, TokenizerConfig
from foretext.text.tokenizer import END, Tokenizer
from foretext.text.train_vocab import train_tokenizer


def new_tokenizer(
    system: System,
    texts: Iterable[str],
    config: TokenizerConfig,
    seed: int,
    progress: Callable[[str, int, int], None],
) -> Tokenizer:
    """Learned from `texts`; `config.size` counts the system's specials too."""
    tokenizer = train_tokenizer(
        texts,
        config.kind,
        config.size - len(system.vocabulary),
        seed=seed,
        sample_chars=config.sample_megabytes * 1_000_000,
        splitter=None if config.splitter == "auto" else config.splitter,
        lower=config.lower,
        progress=progress,
    )
    return tokenizer.with_specials(system.vocabulary) if system.vocabulary else tokenizer


def with_end(tokenizer: Tokenizer) -> Tokenizer:
    """What others published may have no end-of-text, which stands after each document here."""
    return tokenizer if tokenizer.end is not None else tokenizer.with_specials([END])
