"""Four labelled tasks made out of the documentation's own structure, one for each of GPT's input transformations.

- classification: which area of programming a docstring's opening belongs to. Openings that name their own package
  are left out, since they would give the area away.
- entailment: whether a docstring's opening describes what a signature says.
- similarity: whether the second text is a shortened copy of the first: half of its words, drawn at random, in order.
- choice: which of four endings is a sentence's own.

Two rules keep the figures honest. Modules, not rows, are split: no text of a validation or test module is in the
pre-training corpus or in a training row, and a sentence that stands in more than one module is in no row at all. And
the wrong answers are the right answers of other rows: each ending stands three times as a wrong choice and once as the
right one, and the pairs are exchanged or left alone by turns, so that neither half of a pair, nor its length, says
anything about the label by itself.
"""

import csv
import hashlib
import json
import random
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from foretext.demo import prose
from foretext.demo.areas import area_of
from foretext.demo.harvest import Docstring, HarvestLimits, HarvestReport, harvest
from foretext.errors import UserError

TASKS = ("classification", "entailment", "similarity", "choice")
SPLITS = ("train", "valid", "test")
COLUMNS = {
    "classification": ("text", "label"),
    "entailment": ("premise", "hypothesis", "label"),
    "similarity": ("text1", "text2", "label"),
    "choice": ("context", "choice1", "choice2", "choice3", "choice4", "label"),
}
CHOICES = 4
LEAST_KEPT = 4  # words of a shortened text


@dataclass(frozen=True)
class TaskLimits:
    """Rows a task in each split, and the corpus's size in bytes. Shares are of modules."""

    train: int = 1100
    train_entailment: int = 2400  # what it asks is the hardest to learn, and its rows are short
    valid: int = 200
    test: int = 600
    corpus: int = 12_000_000
    valid_share: float = 0.08
    test_share: float = 0.22
    most_words: int = 20
    excerpt_words: int = 40
    shortened_from: int = 16  # words of a text that is shortened
    longest_heading: int = 100  # characters
    harvest: HarvestLimits = field(default_factory=HarvestLimits)

    def rows(self, split: str, task: str = "") -> int:
        if (task, split) == ("entailment", "train"):
            return self.train_entailment
        return {"train": self.train, "valid": self.valid, "test": self.test}[split]


@dataclass(frozen=True)
class Passage:
    """What the tasks use of a docstring: its usable sentences that stand nowhere else, in order."""

    package: str
    area: str | None
    heading: str  # place and signature, as the corpus has them; empty for a module's own docstring and for long ones
    excerpt: str  # the sentences from the first on that are usable, within a number of words
    halves: tuple[str, str] | None  # one sentence, cut near its middle


@dataclass
class DemoData:
    """Where everything is, and what is in it."""

    folder: Path
    corpus: Path
    files: dict[tuple[str, str], Path]  # (task, split) → file
    sizes: dict[str, dict[str, int]]  # task → split → rows
    labels: dict[str, list[str]]
    guessing: dict[str, float]  # the commonest label's share of the test rows
    modules: dict[str, int]  # split → modules
    corpus_documents: int
    corpus_bytes: int
    harvest: HarvestReport

    def path(self, task: str, split: str) -> Path:
        return self.files[task, split]


def split_of(module: str, seed: int, limits: TaskLimits) -> str:
    """Train, validation or test, by the module's name alone: the same for every task and for the corpus."""
    digest = hashlib.sha256(f"{seed} {module}".encode()).digest()
    point = int.from_bytes(digest[:8], "big") / 2**64
    if point < limits.test_share:
        return "test"
    return "valid" if point < limits.test_share + limits.valid_share else "train"


def prepare(
    folder: Path,
    *,
    seed: int = 0,
    limits: TaskLimits | None = None,
    roots: Sequence[Path] | None = None,
    watch: Callable[[], None] = lambda: None,
) -> DemoData:
    """Harvests, splits and writes corpus.jsonl and TASK-SPLIT.csv into `folder`; `watch` may end the harvest."""
    limits = limits or TaskLimits()
    docstrings, harvested = harvest(roots, seed=seed, limits=limits.harvest, watch=watch)
    by_split: dict[str, list[Docstring]] = {split: [] for split in SPLITS}
    for docstring in docstrings:
        by_split[split_of(docstring.module, seed, limits)].append(docstring)
    shared, headings = _shared_keys(docstrings), Counter(one.heading for one in docstrings)
    passages = {split: [_passage(one, shared, headings, limits) for one in by_split[split]] for split in SPLITS}
    rows = _all_rows(passages, limits, seed)
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    held_out = _held_out_keys(by_split)
    documents = _corpus(by_split["train"], held_out, limits, seed)
    data = DemoData(
        folder=folder,
        corpus=folder / "corpus.jsonl",
        files={(task, split): folder / f"{task}-{split}.csv" for task in TASKS for split in SPLITS},
        sizes={task: {split: len(rows[task, split]) for split in SPLITS} for task in TASKS},
        labels={task: sorted({row[-1] for row in rows[task, "train"]}) for task in TASKS},
        guessing={task: _commonest_share(rows[task, "test"]) for task in TASKS},
        modules={split: len({one.module for one in by_split[split]}) for split in SPLITS},
        corpus_documents=len(documents),
        corpus_bytes=sum(len(text.encode()) for text in documents),
        harvest=harvested,
    )
    with data.corpus.open("w", encoding="utf-8") as stream:
        stream.writelines(json.dumps({"text": text}, ensure_ascii=False) + "\n" for text in documents)
    for (task, split), path in data.files.items():
        with path.open("w", encoding="utf-8", newline="") as stream:
            csv.writer(stream).writerows([COLUMNS[task], *rows[task, split]])
    return data


def _commonest_share(rows: list[tuple[str, ...]]) -> float:
    return Counter(row[-1] for row in rows).most_common(1)[0][1] / len(rows)


def _sentence_keys(docstring: Docstring) -> set[str]:
    return {prose.key(sentence) for block in docstring.blocks for sentence in prose.sentences(block.text)}


def _shared_keys(docstrings: Iterable[Docstring]) -> set[str]:
    """Sentences that stand in more than one docstring: no row may use them."""
    counts: Counter[str] = Counter()
    for docstring in docstrings:
        counts.update(_sentence_keys(docstring))
    return {one for one, count in counts.items() if count > 1}


def _held_out_keys(by_split: dict[str, list[Docstring]]) -> set[str]:
    """Every sentence of a validation or test module, short phrases aside ("Returns self" is nobody's own)."""
    found: set[str] = set()
    for split in ("valid", "test"):
        for docstring in by_split[split]:
            found.update(key for key in _sentence_keys(docstring) if key.count(" ") >= 4)
    return found


def _corpus(docstrings: list[Docstring], held_out: set[str], limits: TaskLimits, seed: int) -> list[str]:
    """The pre-training documents: training modules only, without any paragraph that shares a sentence with the rest."""
    order = list(docstrings)
    random.Random(f"corpus {seed}").shuffle(order)
    documents: list[str] = []
    total = 0
    for docstring in order:
        kept = [
            block.text
            for block in docstring.blocks
            if not any(prose.key(sentence) in held_out for sentence in prose.sentences(block.text))
        ]
        text = "\n".join([docstring.heading, *kept])
        size = len(text.encode())
        if kept and total + size <= limits.corpus:
            documents.append(text)
            total += size
    return documents


def _passage(docstring: Docstring, shared: set[str], headings: Counter[str], limits: TaskLimits) -> Passage:
    running: list[str] = []
    for block in docstring.blocks:
        if not block.narrative:
            break
        running += prose.sentences(block.text)
    usable = [prose.is_usable(one, most_words=limits.most_words) and prose.key(one) not in shared for one in running]
    whole = [sentence for sentence, is_usable in zip(running, usable) if is_usable]
    return Passage(
        package=docstring.package,
        area=area_of(docstring.package),
        heading=_own_heading(docstring, headings, limits),
        excerpt=_excerpt(running, usable, limits.excerpt_words),
        halves=next((cut for cut in map(_halves, whole) if cut), None),
    )


def _own_heading(docstring: Docstring, headings: Counter[str], limits: TaskLimits) -> str:
    """The heading, if no other docstring has it: one of two modules' would stand in training and in test."""
    own = docstring.name and headings[docstring.heading] == 1 and len(docstring.heading) <= limits.longest_heading
    return docstring.heading if own else ""


def _halves(text: str, least_words: int = 9) -> tuple[str, str] | None:
    words = text.split()
    middle = len(words) // 2
    return (" ".join(words[:middle]), " ".join(words[middle:])) if len(words) >= least_words else None


def _excerpt(running: list[str], usable: list[bool], most_words: int) -> str:
    taken: list[str] = []
    for sentence, is_usable in zip(running, usable):
        if not is_usable or sum(len(one.split()) for one in [*taken, sentence]) > most_words:
            break
        taken.append(sentence)
    return " ".join(taken)


Row = tuple[str, ...]
Maker = Callable[[list[Passage], int, random.Random], list[Row]]


def _all_rows(passages: dict[str, list[Passage]], limits: TaskLimits, seed: int) -> dict[tuple[str, str], list[Row]]:
    areas = _areas(passages, limits)
    makers: dict[str, Maker] = {
        "classification": lambda found, count, _: _classification(found, count, areas),
        "entailment": _entailment,
        "similarity": lambda found, count, generator: _similarity(found, count, generator, limits.shortened_from),
        "choice": _choice,
    }
    rows: dict[tuple[str, str], list[Row]] = {}
    for task in TASKS:
        for split in SPLITS:
            generator = random.Random(f"{task} {split} {seed}")
            found = list(passages[split])
            generator.shuffle(found)
            made = makers[task](found, limits.rows(split, task), generator)
            if not made:
                raise UserError(
                    f"too little documentation for the {task} task's {split} rows: "
                    "run the demonstration in an environment with more packages, for example numpy and scikit-learn"
                )
            generator.shuffle(made)
            rows[task, split] = made
    return rows


def _gives_nothing_away(passage: Passage) -> bool:
    return bool(passage.excerpt) and passage.package.lower().strip("_") not in passage.excerpt.lower()


def _areas(passages: dict[str, list[Passage]], limits: TaskLimits) -> list[str]:
    """The areas with enough excerpts in every split to fill an eighth of an even share of its rows."""
    areas = sorted({one.area for found in passages.values() for one in found if one.area})
    counts = {split: Counter(one.area for one in passages[split] if _gives_nothing_away(one)) for split in SPLITS}
    return [
        area
        for area in areas
        if all(counts[split][area] >= max(2, limits.rows(split) // len(areas) // 8) for split in SPLITS)
    ]


def _classification(found: list[Passage], count: int, areas: list[str]) -> list[Row]:
    """Openings and their areas: as many of each area, as far as they go."""
    rows: list[Row] = []
    if len(areas) < 2:
        return rows
    for area in areas:
        members = [one for one in found if one.area == area and _gives_nothing_away(one)]
        rows += [(one.excerpt, area) for one in members[: count // len(areas)]]
    return rows


def _entailment(found: list[Passage], count: int, generator: random.Random) -> list[Row]:
    """Two signatures of different areas a time, with descriptions of nearly one length: its own or the other's."""
    members = {one.heading: (one, one.heading, one.excerpt) for one in found if one.heading and one.excerpt}
    groups = _alike(list(members.values()), 2, count // 2, generator)
    return _exchanged([(first[1:], second[1:]) for first, second in groups], ("yes", "no"))


def _similarity(found: list[Passage], count: int, generator: random.Random, words: int) -> list[Row]:
    """Two openings of different areas and nearly one length a time, each with its own shortened copy or the other's."""
    cut = [(one, " ".join(one.excerpt.split()[:words])) for one in found if len(one.excerpt.split()) >= 2 * LEAST_KEPT]
    members = [(one, text, _shortened(text, generator)) for one, text in cut]
    groups = _alike(members, 2, count // 2, generator)
    return _exchanged([(first[1:], second[1:]) for first, second in groups], ("a copy", "another text"))


def _shortened(text: str, generator: random.Random) -> str:
    """Half of the words, drawn at random, in their order."""
    words = text.split()
    kept = sorted(generator.sample(range(len(words)), len(words) // 2))
    return " ".join(words[index] for index in kept)


Pair = tuple[str, str]
Member = tuple[Passage, str, str]  # a passage, and the two texts of it that belong together


def _exchanged(couples: list[tuple[Pair, Pair]], labels: tuple[str, str]) -> list[Row]:
    """Couples of pairs by turns as they are, and with their second texts exchanged. Each text stands in one row."""
    rows: list[Row] = []
    for number, ((a, of_a), (b, of_b)) in enumerate(couples[: len(couples) // 2 * 2]):
        rows += (
            [(a, of_a, labels[0]), (b, of_b, labels[0])] if number % 2 else [(a, of_b, labels[1]), (b, of_a, labels[1])]
        )
    return rows


def _choice(found: list[Passage], count: int, generator: random.Random) -> list[Row]:
    """Four sentences of different areas a time: each one's beginning with all four endings, in one order."""
    members = [(one, *one.halves) for one in found if one.halves]
    rows: list[Row] = []
    for group in _alike(members, CHOICES, count // CHOICES, generator):
        shown = list(group)
        generator.shuffle(shown)
        endings = [ending for _, _, ending in shown]
        rows += [(beginning, *endings, str(number)) for number, (_, beginning, _) in enumerate(shown, start=1)]
    return rows


def _alike(members: list[Member], size: int, most: int, generator: random.Random) -> list[tuple[Member, ...]]:
    """At most `most` groups of `size` whose second texts have nearly one length, each from an area of its own.

    Sorted by length, each member joins the first open group that has none of its area yet; a group that waits until
    lengths have moved on by three words is given up.
    """

    def length(member: Member) -> int:
        return len(member[2].split())

    # One member for each second text: the same words must not be right and wrong at once.
    known = list({prose.key(member[2]): member for member in members if member[0].area}.values())
    whole: list[tuple[Member, ...]] = []
    waiting: list[list[Member]] = []
    for one in sorted(known[: (most + 8) * size], key=length):
        waiting = [group for group in waiting if length(one) - length(group[0]) <= 3]
        fitting = next((group for group in waiting if all(one[0].area != other[0].area for other in group)), None)
        if fitting is None:
            waiting.append([one])
            continue
        fitting.append(one)
        if len(fitting) == size:
            waiting.remove(fitting)
            whole.append(tuple(fitting))
    generator.shuffle(whole)
    return whole[:most]
