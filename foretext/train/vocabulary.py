"""The vocabulary of a new model: of the kind that its system has, with the specials that it needs."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from foretext.errors import UserError
from foretext.systems.base import System, TokenizerConfig
from foretext.text.tokenizers.base import END, Tokenizer
from foretext.text.tokenizers.training import least_size, sample_stretches, specials_of, train_tokenizer
from foretext.text.tokenizers.unigram import UNKNOWN


def new_tokenizer(
    system: System,
    texts: Iterable[str],
    config: TokenizerConfig,
    seed: int,
    progress: Callable[[str, int, int], None],
) -> Tokenizer:
    """Learned from `texts`; `config.size` counts the system's specials too."""
    own = system.vocabulary if config.kind == "unigram" and UNKNOWN in system.vocabulary else ()
    added = [name for name in system.vocabulary if name not in (own or specials_of(config.kind))]
    least = least_size(config.kind) + len(added)
    if config.size < least:
        raise UserError(f"tokenizer.size={config.size}: {config.kind} for {system.name} needs at least {least} ids")
    tokenizer = train_tokenizer(
        texts,
        config.kind,
        config.size - len(added),
        sample=lambda documents: sample_stretches(documents, config.sample_megabytes * 1_000_000, seed),
        splitter=None if config.splitter == "auto" else config.splitter,
        lower=config.lower,
        specials=own,  # a whole set: it has a piece for what is unknown
        progress=progress,
    )
    return tokenizer.with_specials(added) if added else tokenizer


def completed(tokenizer: Tokenizer, system: System) -> Tokenizer:
    """A vocabulary that others published, with the specials that the system needs and it has not."""
    missing = [name for name in system.vocabulary if name not in tokenizer.specials]
    return with_end(tokenizer.with_specials(missing) if missing else tokenizer)


def with_end(tokenizer: Tokenizer) -> Tokenizer:
    """What others published may have no end-of-text, which stands after each document here."""
    return tokenizer if tokenizer.end is not None else tokenizer.with_specials([END])
