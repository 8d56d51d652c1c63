"""Log-likelihoods of completions given contexts, for in-context learning.

Text shared by many queries is read once. All contexts of a call begin with the same tokens (mostly the examples): these
are read first, and their keys and values are cached. A query's own context is read once after them, and its completions
side by side after that: each sees the context and itself, but no other completion (`Batch.attend_BTT`). So with five
examples and four choices, a query costs only its own few tokens, not four times everything.

A trunk that can read on forever (an LSTM) reads one token after the other: completions are then rows of their own, each
from the state at the end of the context, and nothing is cut. XLNet predicts each token of a completion in text order,
where no position sees later ones: one row for each context with its completion.

A query that does not fit the model's context loses the beginning of its own context, never part of a completion, and is
counted; each of its completions is then read separately, after as much of the context as fits.

Ids are in the model's reading order. For a right-to-left model, `channel_query` reverses the text: its context is what
follows the answer, and the answer and everything before it are scored.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice, takewhile

import torch
from torch import Tensor

from foretext.batch import Batch, padded
from foretext.errors import UserError, refuse_if
from foretext.generate.sampling import reader_of
from foretext.nn.trunk import Trunk
from foretext.runs.model import SavedModel
from foretext.text.tokenizers.base import END, Tokenizer

BATCH_TOKENS = 4096  # tokens read at a time
BATCH_KEYS = 1 << 16  # positions that these see; the shared cache is copied for each row and counts for each
Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class Query:
    """A context and what may be read after it, as ids in reading order."""

    context: tuple[int, ...]
    completions: tuple[tuple[int, ...], ...]
    where: str = ""  # for messages
    parts: tuple[int, ...] = ()  # for each completion, how many of its first tokens are also summed separately


@dataclass(frozen=True)
class Likelihood:
    """log P(completion | context), summed over its tokens."""

    total: float
    tokens: int
    greedy: bool  # whether every token was the most likely one
    cut: int  # tokens of the context that did not fit
    part: float = 0.0  # the share of the total from its first tokens (`Query.parts`)


@dataclass(frozen=True)
class _Branch(Query):
    """A unit of work: a query, or some of its completions, without the shared tokens if these are read before it."""

    query: int = 0
    first: int = 0  # number of its first completion in the query
    cut: int = 0

    @property
    def length(self) -> int:
        return len(self.context) + sum(len(tokens) - 1 for tokens in self.completions)

    @property
    def places(self) -> list[tuple[int, int]]:
        """The query and the number of each completion."""
        return [(self.query, self.first + number) for number in range(len(self.completions))]


def split_border(tokenizer: Tokenizer, context: str, completion: str) -> tuple[list[int], list[int]]:
    """The ids of context and completion, encoded as one text and then split.

    White space at the end of the context goes to the completion, as in a byte-level vocabulary. A token across the
    border belongs to the completion: as part of the context it would reveal some of the answer.
    """
    bare = context.rstrip()
    completion = context[len(bare) :] + completion
    whole, before = tokenizer.encode(bare + completion), tokenizer.encode(bare)
    border = _alike(before, whole, len(whole) - 1)
    return whole[:border], whole[border:]


def _alike(first: Sequence[int], second: Sequence[int], most: int) -> int:
    """How many tokens both begin with, at most `most`."""
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], islice(zip(first, second), max(0, most))))


def query_of(tokenizer: Tokenizer, context: str, answers: Sequence[str], where: str = "") -> Query:
    """Several answers after one context, as ids, with one border for all of them.

    A token across the border may leave one answer a shorter context than the others. Then the border moves there for
    all: the end of the context is scored with each answer, which adds the same to all, and no answer has a longer
    context than another.
    """
    pairs = [split_border(tokenizer, context, answer) for answer in answers]
    border = min(len(before) for before, _ in pairs)
    wholes = [tuple(before) + tuple(after) for before, after in pairs]
    return Query(wholes[0][:border], tuple(whole[border:] for whole in wholes), where)


def channel_query(
    tokenizer: Tokenizer, context: str, answers: Sequence[str], behind: str = "", where: str = ""
) -> Query:
    """The same for a right-to-left model: given the text `behind`, it scores each answer and then the context, which
    has the same tokens for all answers. `parts` are the tokens of the answers.

    A token across a border is handled as in `query_of`: the given text ends before it for all answers. If one answer
    joins the end of the context, that end is scored with the answer for all of them.
    """
    ahead = query_of(tokenizer, context, [answer + behind for answer in answers])
    wholes = [(*ahead.context, *rest)[::-1] for rest in ahead.completions]
    given = tokenizer.encode(behind)[::-1] if behind else []
    border = min(_alike(given, whole, len(whole) - 1) for whole in wholes)
    parts = tuple(max(0, len(rest) - border) for rest in ahead.completions)
    return Query(wholes[0][:border], tuple(whole[border:] for whole in wholes), where, parts)


@torch.no_grad()
def score_queries(
    model: SavedModel, queries: Sequence[Query], progress: Progress | None = None
) -> list[list[Likelihood]]:
    """The likelihood of each completion of each query; ids are in the model's reading order."""
    reader, reach = reader_of(model, "learning in context")
    queries = [query if query.context else _behind_end(query, model.tokenizer.end) for query in queries]
    room = sys.maxsize if reach is None else reach
    read = _read_on if reach is None else _read if reader.branches else _ask
    shared, fitting, cut = _divided(queries, room, sharing=read is not _ask)
    state = reader.new_state(1)
    if shared:
        state = reader(Batch(torch.tensor([shared], device=next(reader.parameters()).device)), state).state
    likelihoods: dict[tuple[int, int], Likelihood] = {}
    for branches, start, before in ((fitting, len(shared), state), (cut, 0, reader.new_state(1))):
        for group in _groups(branches, start):
            places = [place for branch in group for place in branch.places]
            likelihoods |= dict(zip(places, read(reader, group, start, before)))
            if progress is not None:
                progress(len(likelihoods), sum(len(query.completions) for query in queries))
    return [[likelihoods[number, k] for k in range(len(query.completions))] for number, query in enumerate(queries)]


def _behind_end(query: Query, end: int | None) -> Query:
    """Something must precede the first predicted token: end-of-text, which comes before every document."""
    if end is None:
        raise UserError(f"an empty context needs {END}, which this vocabulary does not have; give a context")
    return replace(query, context=(end,))


def _divided(queries: Sequence[Query], room: int, sharing: bool) -> tuple[list[int], list[_Branch], list[_Branch]]:
    """The tokens that all fitting contexts begin with, the work after them, and the work for queries that do not
    fit."""
    # Positions for the longest completion; its last token is predicted, not read.
    needed = [len(query.context) + max(map(len, query.completions)) - 1 for query in queries]
    whole = {number: query for number, query in enumerate(queries) if needed[number] <= room}
    long = {number: query for number, query in enumerate(queries) if needed[number] > room}
    shared = _common([query.context for query in whole.values()]) if sharing else []
    fitting = [branch for number, query in whole.items() for branch in _branches(query, number, len(shared), room)]
    return shared, fitting, [branch for number, query in long.items() for branch in _alone(query, number, room)]


def _common(contexts: Sequence[tuple[int, ...]]) -> list[int]:
    """The tokens that all contexts begin with, at least one token short of each, so that a query reads something of its
    own."""
    if len(contexts) < 2:
        return []
    length = min(len(context) for context in contexts) - 1
    first, last = min(contexts), max(contexts)  # what these two share, all share
    return list(first[: _alike(first, last, length)])


def _branches(query: Query, number: int, shared: int, room: int) -> Iterator[_Branch]:
    """A query without the shared tokens, with so many completions side by side that a unit of work stays small."""
    context, first = query.context[shared:], 0
    while first < len(query.completions):
        last, size = first, len(context)
        while last < len(query.completions) and (last == first or size + len(query.completions[last]) <= room):
            size += len(query.completions[last]) - 1
            last += 1
        parts = query.parts[first:last]
        yield _Branch(context, query.completions[first:last], query.where, parts, number, first)
        first = last


def _alone(query: Query, number: int, room: int) -> Iterator[_Branch]:
    """Each completion by itself, after as much of the context as fits."""
    for which, completion in enumerate(query.completions):
        left = room - (len(completion) - 1)
        refuse_if(
            left < 1,
            f"{query.where + ': ' if query.where else ''}the text to score has {len(completion):,} tokens and does "
            f"not fit the model's context of {room:,}; shorten it or leave the row out",
        )
        context = query.context[-left:]
        cut, parts = len(query.context) - len(context), query.parts[which : which + 1]
        yield _Branch(context, (completion,), query.where, parts, number, which, cut)


def _groups(branches: Sequence[_Branch], seen: int) -> list[list[_Branch]]:
    """Branches of similar length together, longest first; `seen`: positions before each."""
    groups: list[list[_Branch]] = []
    for branch in sorted(branches, key=lambda one: -one.length):
        rows, longest = (len(groups[-1]) + 1, groups[-1][0].length) if groups else (1, 0)
        if not groups or rows * longest > BATCH_TOKENS or rows * (seen + longest) > BATCH_KEYS:
            groups.append([])
        groups[-1].append(branch)
    return groups


def _read(trunk: Trunk, group: Sequence[_Branch], start: int, state: object) -> list[Likelihood]:
    """One pass over a group: contexts at positions from `start` on, completions after them, side by side."""
    texts, positions, owners = ([list[int]() for _ in group] for _ in range(3))  # owner 0: the context
    rows, columns, targets = list[int](), list[int](), list[int]()
    for row, branch in enumerate(group):
        size = len(branch.context)
        texts[row] += branch.context
        positions[row] += range(start, start + size)
        owners[row] += [0] * size
        for number, tokens in enumerate(branch.completions, 1):
            place, read = len(texts[row]), len(tokens) - 1
            texts[row] += tokens[:-1]
            positions[row] += range(start + size, start + size + read)
            owners[row] += [number] * read
            rows += [row] * len(tokens)
            columns += [size - 1, *range(place, place + read)]
            targets += tokens
    (ids_BT, _), (positions_BT, _), (owners_BT, _) = padded(texts), padded(positions), padded(owners, fill=-1)
    # A token sees earlier tokens of the context and of its own completion; padding sees at least itself.
    of_context, of_its_own = owners_BT[:, None] == 0, owners_BT[:, None] == owners_BT[:, :, None]
    attend_BTT = (of_context | of_its_own).tril()
    device = next(trunk.parameters()).device
    batch = Batch(ids_BT, positions_BT=positions_BT, attend_BTT=attend_BTT).to(device)
    top = trunk(batch, state).top[torch.tensor(rows), torch.tensor(columns)]
    return _sums(trunk, group, top, torch.tensor(targets, device=device))


def _read_on(trunk: Trunk, group: Sequence[_Branch], start: int, state: object) -> list[Likelihood]:
    """The same for a trunk with a recurrent state: contexts first, then each completion as a row that continues from
    its context's state."""
    device = next(trunk.parameters()).device
    zero = torch.zeros(len(group), dtype=torch.long, device=device)
    read = trunk(Batch(*padded([branch.context for branch in group])).to(device), trunk.pick(state, zero))
    lasts_BD = read.top[torch.arange(len(group)), torch.tensor([len(branch.context) - 1 for branch in group])]
    owners = torch.tensor([number for number, branch in enumerate(group) for _ in branch.completions], device=device)
    completions = [tokens for branch in group for tokens in branch.completions]
    ids, real = padded([tokens[:-1] for tokens in completions])
    after = trunk(Batch(ids.to(device), real.to(device)), trunk.pick(read.state, owners)).top
    top_BTD = torch.cat([lasts_BD[owners][:, None], after], dim=1)
    asked_BT = torch.nn.functional.pad(real, (1, 0), value=True).to(device)
    targets = torch.tensor([token for tokens in completions for token in tokens], device=device)
    return _sums(trunk, group, top_BTD[asked_BT], targets)


def _ask(trunk: Trunk, group: Sequence[_Branch], start: int, state: object) -> list[Likelihood]:
    """The same for a trunk that can do neither: one row for each context with its completion."""
    rows = [(*branch.context, *tokens) for branch in group for tokens in branch.completions]
    return _sums(trunk, group, *trunk.tell(rows, [len(tokens) for branch in group for tokens in branch.completions]))


def _sums(trunk: Trunk, group: Sequence[_Branch], top_ND: Tensor, targets_N: Tensor) -> list[Likelihood]:
    """The sums of all completions of a group, one after the other."""
    targets_N = trunk.output_ids(targets_N)
    losses, best = trunk.output_layer().token_losses(top_ND, targets_N)
    values, hits = iter(losses.double().tolist()), iter((best == targets_N).tolist())
    likelihoods = []
    for branch in group:
        for tokens, first in zip(branch.completions, branch.parts or (0,) * len(branch.completions)):
            nats, greedy = list(islice(values, len(tokens))), all(list(islice(hits, len(tokens))))
            likelihoods.append(Likelihood(-sum(nats), len(tokens), greedy, branch.cut, -sum(nats[:first], 0.0)))
    return likelihoods
