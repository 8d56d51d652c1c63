"""Four labelled tasks made from the documentation's own structure, one for each of GPT's input transformations.

- classification: which area of programming a docstring's opening belongs to. Openings that name their own package
  are left out, since they would reveal the area.
- entailment: whether a docstring's opening describes what a signature says.
- similarity: whether the second text is a shortened copy of the first: half of its words, drawn at random, in order.
- choice: which of four endings belongs to a sentence.

Two rules keep the results honest. First, modules are split, not rows: no text of a validation or test module is in the
pre-training corpus or in a training row, and a sentence that occurs in more than one module is in no row. Second, wrong
answers are the right answers of other rows: each ending occurs three times as a wrong choice and once as the right one,
and pairs are exchanged or left alone alternately. So neither half of a pair, nor its length, reveals the label by
itself.
"""

import csv
import hashlib
import itertools
import json
import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from foretext.demo.harvest import Docstring, harvest, sentence_key, sentences
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
LEAST_WORDS, MOST_WORDS = 5, 20  # words per sentence in a row
EXCERPT_WORDS = 40
LONGEST_HEADING = 100  # characters

# A table, not a rule: a package that is not listed has no area; its text is in the corpus but in no task.
_AREAS = {
    "network": """email http urllib smtplib imaplib poplib ftplib nntplib telnetlib socket socketserver ssl xmlrpc cgi
        wsgiref ipaddress mailbox mailcap netrc urllib3 requests httpx httpcore h11 aiohttp fastapi starlette""",
    "files and system": """os pathlib shutil tempfile glob fnmatch zipfile tarfile gzip bz2 lzma posixpath ntpath io
        genericpath subprocess platform filecmp fileinput mimetypes dbm shelve sqlite3 fsspec filelock _pyio pty
        _compression sysconfig site venv zipapp zipimport curses getpass locale plistlib pathspec psutil""",
    "text": "re string textwrap difflib html xml json csv codecs ftfy jinja2 pygments pyparsing argparse rich",
    "language tools": "ast inspect typing enum functools importlib unittest doctest pdb logging setuptools _pytest",
    "concurrency": "asyncio threading multiprocessing concurrent queue selectors anyio joblib trio threadpoolctl",
    "mathematics": "numpy scipy sympy mpmath decimal _pydecimal fractions statistics random numbers networkx",
    "machine learning": "sklearn torch functorch transformers thinc accelerate safetensors spacy keras jax",
    "graphics": "matplotlib mpl_toolkits PIL tkinter turtle contourpy kiwisolver colorsys plotly seaborn bokeh",
    "tables": "polars narwhals pandas pyarrow duckdb dask",
}
AREA_OF = {package: area for area, packages in _AREAS.items() for package in packages.split()}

Row = tuple[str, ...]
Rows = dict[tuple[str, str], list[Row]]  # (task, split) → rows, the label last
ROWS = {"train": 550, "valid": 200, "test": 600}  # per task
HARDEST = "entailment"  # gets twice the training rows, which are short
HELD_OUT = {"test": 0.22, "valid": 0.3}  # shares of the modules, cumulative


@dataclass(frozen=True)
class Passage:
    """What the tasks use of a docstring: its usable sentences that occur nowhere else, in order."""

    area: str
    heading: str  # module and signature, as in the corpus; empty for a module's docstring and for long ones
    excerpt: str  # the usable sentences from the first on, up to a number of words
    halves: tuple[str, str] | None  # one sentence, cut near its middle
    names_package: bool  # the excerpt would reveal the area


Member = tuple[Passage, str, str]  # a passage, and its two texts that belong together


@dataclass(frozen=True)
class DemoData:
    """The rows of each task and split, the label last, and facts about the corpus for the report."""

    folder: Path
    rows: Rows
    modules: dict[str, int]  # split → modules
    packages: list[str]  # those with the most text
    documents: list[str]

    @property
    def corpus(self) -> Path:
        return self.folder / "corpus.jsonl"

    @property
    def size(self) -> str:
        return f"{len(self.documents):,} docstrings, {sum(len(text.encode()) for text in self.documents) / 1e6:.1f} MB"

    def path(self, task: str, split: str) -> Path:
        return self.folder / f"{task}-{split}.csv"

    def guessing(self, task: str) -> float:
        """The share of the most frequent label in the test rows."""
        labels = Counter(row[-1] for row in self.rows[task, "test"])
        return max(labels.values()) / labels.total()


def split_of(module: str, seed: int) -> str:
    """Train, validation or test, by the module's name alone: the same for every task and for the corpus."""
    point = int.from_bytes(hashlib.sha256(f"{seed} {module}".encode()).digest()[:8], "big") / 2**64
    return next((split for split, end in HELD_OUT.items() if point < end), "train")


def prepare(
    folder: Path,
    *,
    seed: int = 0,
    sizes: Mapping[str, int] = ROWS,
    roots: Sequence[Path] = (),
    watch: Callable[[], None] = lambda: None,
) -> DemoData:
    """Harvests, splits, and writes corpus.jsonl and TASK-SPLIT.csv into `folder`; `watch` may end the harvest."""
    docstrings = harvest(roots, seed=seed, watch=watch)
    by_split: dict[str, list[Docstring]] = {split: [] for split in SPLITS}
    text: Counter[str] = Counter()
    for docstring in docstrings:
        by_split[split_of(docstring.module, seed)].append(docstring)
        text[docstring.package] += sum(map(len, docstring.paragraphs))
    # Except short phrases: "Returns self" occurs everywhere.
    held_out = {
        key for docstring in by_split["valid"] + by_split["test"] for key in _keys(docstring) if key.count(" ") >= 4
    }
    seen = Counter(key for docstring in docstrings for key in (docstring.heading, *_keys(docstring)))
    passages = {split: [_passage(docstring, seen) for docstring in by_split[split]] for split in SPLITS}
    data = DemoData(
        folder=Path(folder),
        rows=_all_rows(passages, sizes, seed),
        modules={split: len({docstring.module for docstring in by_split[split]}) for split in SPLITS},
        packages=[package for package, _ in text.most_common(10)],
        documents=_documents(by_split["train"], held_out, seed),
    )
    data.folder.mkdir(parents=True, exist_ok=True)
    lines = [json.dumps({"text": text}, ensure_ascii=False) + "\n" for text in data.documents]
    data.corpus.write_text("".join(lines), encoding="utf-8")
    for (task, split), rows in data.rows.items():
        with data.path(task, split).open("w", encoding="utf-8", newline="") as stream:
            csv.writer(stream).writerows([COLUMNS[task], *rows])
    return data


def _keys(docstring: Docstring) -> set[str]:
    return {sentence_key(sentence) for text in docstring.paragraphs for sentence in sentences(text)}


def _documents(docstrings: list[Docstring], held_out: set[str], seed: int) -> list[str]:
    """The pre-training text: training modules only, without any paragraph that shares a sentence with the other
    splits."""
    documents = []
    for docstring in docstrings:
        texts = [text for text in docstring.paragraphs if held_out.isdisjoint(map(sentence_key, sentences(text)))]
        documents += ["\n".join([docstring.heading, *texts])] if texts else []
    random.Random(f"corpus {seed}").shuffle(documents)
    return documents


def is_usable(sentence: str) -> bool:
    """Whether a sentence can be used in a labelled row: complete, of medium length, mostly words."""
    letters = sum(char.isalpha() or char == " " for char in sentence)
    is_whole = (sentence[0].isupper() or ord(sentence[0]) > 127) and sentence[-1] in ".!?。！？"
    is_short = LEAST_WORDS <= len(sentence.split()) <= MOST_WORDS and len(sentence) <= 9 * MOST_WORDS
    return is_whole and is_short and letters >= 0.85 * len(sentence) and "http" not in sentence


def _passage(docstring: Docstring, seen: Counter[str]) -> Passage:
    """`seen`: how many docstrings have a sentence or a heading. A copy in two modules could be in training and in
    test."""
    running = [sentence for text in docstring.opening for sentence in sentences(text)]
    usable = [is_usable(sentence) and seen[sentence_key(sentence)] == 1 for sentence in running]
    opening = running[: [*usable, False].index(False)]
    while sum(len(sentence.split()) for sentence in opening) > EXCERPT_WORDS:
        opening.pop()
    whole = (sentence.split() for sentence, good in zip(running, usable) if good)
    words = next((words for words in whole if len(words) >= 9), [])
    middle = len(words) // 2
    is_own_heading = docstring.signature and seen[docstring.heading] == 1 and len(docstring.heading) <= LONGEST_HEADING
    return Passage(
        area=AREA_OF.get(docstring.package, ""),
        heading=docstring.heading if is_own_heading else "",
        excerpt=" ".join(opening),
        halves=(" ".join(words[:middle]), " ".join(words[middle:])) if words else None,
        names_package=docstring.package.lower().strip("_") in " ".join(opening).lower(),
    )


def _all_rows(passages: dict[str, list[Passage]], sizes: Mapping[str, int], seed: int) -> Rows:
    areas = [area for area in _AREAS if all(len(_openings(passages[split], area)) > 1 for split in SPLITS)]
    rows: Rows = {}
    for task, split in itertools.product(TASKS, SPLITS):
        generator = random.Random(f"{task} {split} {seed}")
        usable = [passage for passage in passages[split] if passage.area]
        generator.shuffle(usable)
        most = sizes[split] * (2 if (task, split) == (HARDEST, "train") else 1)
        if task in _MAKERS:
            drawn = _MAKERS[task](usable, most, generator)
        else:
            drawn = [row for area in areas for row in _openings(usable, area)[: most // len(areas)]]
        if len({row[-1] for row in drawn}) < 2:
            raise UserError(
                f"too little documentation for the {task} task's {split} rows: "
                "run the demonstration in an environment with more packages, for example numpy and scikit-learn"
            )
        generator.shuffle(drawn)
        rows[task, split] = drawn
    return rows


def _openings(passages: list[Passage], area: str) -> list[Row]:
    """The openings of an area that do not reveal it."""
    in_area = (passage for passage in passages if passage.area == area and passage.excerpt)
    return [(passage.excerpt, area) for passage in in_area if not passage.names_package]


def _entailment(passages: list[Passage], most: int, generator: random.Random) -> list[Row]:
    """Two signatures of different areas at a time, with descriptions of nearly equal length: its own or the other's."""
    headed = (passage for passage in passages if passage.heading and passage.excerpt)
    members = [(passage, passage.heading, passage.excerpt) for passage in headed]
    return _exchanged(_alike(members, 2, most // 2, generator), "yes", "no")


def _similarity(passages: list[Passage], most: int, generator: random.Random) -> list[Row]:
    """Two openings of different areas and nearly equal length at a time, each with its own shortened copy or the
    other's."""
    cut = [(passage, passage.excerpt.split()[:16]) for passage in passages if len(passage.excerpt.split()) >= 8]
    drawn = [(passage, words, sorted(generator.sample(range(len(words)), len(words) // 2))) for passage, words in cut]
    members = [(passage, " ".join(words), " ".join(words[place] for place in kept)) for passage, words, kept in drawn]
    return _exchanged(_alike(members, 2, most // 2, generator), "a copy", "another text")


def _exchanged(couples: list[list[Member]], same: str, other: str) -> list[Row]:
    """Couples of pairs, alternately unchanged and with their second texts exchanged. Each text occurs in one row."""
    rows: list[Row] = []
    for number, ((_, a, of_a), (_, b, of_b)) in enumerate(couples[: len(couples) // 2 * 2]):
        rows += [(a, of_a, same), (b, of_b, same)] if number % 2 else [(a, of_b, other), (b, of_a, other)]
    return rows


def _choice(passages: list[Passage], most: int, generator: random.Random) -> list[Row]:
    """Four sentences of different areas at a time: the beginning of each with all four endings, in one order."""
    rows: list[Row] = []
    members = [(passage, *passage.halves) for passage in passages if passage.halves]
    for group in _alike(members, CHOICES, most // CHOICES, generator):
        generator.shuffle(group)
        endings = [ending for _, _, ending in group]
        rows += [(beginning, *endings, str(number)) for number, (_, beginning, _) in enumerate(group, start=1)]
    return rows


_MAKERS = {"entailment": _entailment, "similarity": _similarity, "choice": _choice}


def _alike(members: list[Member], size: int, most: int, generator: random.Random) -> list[list[Member]]:
    """At most `most` groups of `size` whose second texts have nearly equal length, each from a different area."""

    def length(member: Member) -> int:
        return len(member[2].split())

    # One member for each second text: the same words must not be both right and wrong.
    known = sorted({sentence_key(member[2]): member for member in members}.values(), key=length)
    groups: list[list[Member]] = []
    start = 0
    while start + size <= len(known):
        group = known[start : start + size]
        fits = len({passage.area for passage, _, _ in group}) == size and length(group[-1]) - length(group[0]) <= 3
        if fits:
            groups.append(group)
        start += size if fits else 1
    generator.shuffle(groups)
    return groups[:most]
