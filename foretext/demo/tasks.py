"""Four labelled tasks made from the documentation's own structure, one for each of GPT's input transformations.

- classification: which area of programming a docstring's opening belongs to. Openings that name their own package
  are left out, since they would reveal the area.
- entailment: whether a docstring's opening describes what a signature says.
- similarity: whether the second text is a shortened copy of the first: half of its words, drawn at random, in order.
- choice: which of four endings belongs to a sentence.

Two rules keep the results honest. First, modules are split, not rows, and the harvest keeps a sentence in one module
only: no text of a validation or test module is in the pre-training corpus or in a training row. Second, wrong answers
are the right answers of other rows: each ending occurs three times as a wrong choice and once as the right one, and
pairs are exchanged or left alone alternately. So neither half of a pair, nor its length, reveals the label by itself.
"""

import csv
import hashlib
import itertools
import json
import random
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from foretext.demo.harvest import Docstring, harvest, sentence_key
from foretext.errors import refuse_if

SPLITS = ("train", "valid", "test")
COLUMNS = {
    "classification": ("text", "label"),
    "entailment": ("premise", "hypothesis", "label"),
    "similarity": ("text1", "text2", "label"),
    "choice": ("context", "choice1", "choice2", "choice3", "choice4", "label"),
}
TASKS = tuple(COLUMNS)
CORPUS = "corpus.jsonl"
USABLE = re.compile(r"(?=(?:\S+ ){4,19}\S+$)[A-Z][\w ,'\"()./-]+[.!?]")  # 5 to 20 words in plain characters

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
Member = tuple[str, str, str]  # an area, and two texts of one docstring that belong together
ROWS = {"train": 550, "valid": 200, "test": 600}  # per task
HELD_OUT = {"test": 0.22, "valid": 0.3}  # shares of the modules, cumulative


class DemoData(NamedTuple):
    """The rows of each task and split, the label last, and the size of the corpus for the report."""

    folder: Path
    size: str
    rows: dict[tuple[str, str], list[Row]]  # (task, split) → rows, the label last

    def path(self, task: str, split: str) -> Path:
        return self.folder / f"{task}-{split}.csv"

    def guessing(self, task: str) -> float:
        """The share of the most frequent label in the test rows."""
        rows = self.rows[task, "test"]
        return max(Counter(row[-1] for row in rows).values()) / len(rows)


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
    generator = random.Random(seed)
    generator.shuffle(docstrings)
    by_split = {split: [one for one in docstrings if split_of(one.module, seed) == split] for split in SPLITS}
    folder.mkdir(parents=True, exist_ok=True)
    lines = [
        json.dumps({"text": "\n".join([one.heading, " ".join(one.opening), *one.rest])}, ensure_ascii=False) + "\n"
        for one in by_split["train"]
    ]
    (folder / CORPUS).write_text("".join(lines), encoding="utf-8")
    known = {split: [made for one in by_split[split] if (made := _members(one, generator))] for split in SPLITS}
    areas = set.intersection(*({members[TASKS[0]][0] for members in known[split]} for split in SPLITS))
    data = DemoData(
        folder,
        f"{len(lines):,} docstrings, {sum(len(line.encode()) for line in lines) / 1e6:.1f} MB; "
        f"{len(docstrings) - len(lines):,} from other modules are kept for validation and test",
        {},
    )
    for task, split in itertools.product(TASKS, SPLITS):
        most = sizes[split] * (2 if (task, split) == ("entailment", "train") else 1)  # its rows are short, and hardest
        rows = _rows(task, [members[task] for members in known[split] if members[task][0] in areas], most, generator)
        refuse_if(
            len({row[-1] for row in rows}) < 2,
            f"too little documentation for the {task} task's {split} rows: "
            "run the demonstration in an environment with more packages, for example numpy and scikit-learn",
        )
        generator.shuffle(rows)
        data.rows[task, split] = rows
        with data.path(task, split).open("w", encoding="utf-8", newline="") as stream:
            csv.writer(stream).writerows([COLUMNS[task], *rows])
    return data


def _members(docstring: Docstring, generator: random.Random) -> dict[str, Member]:
    """For each task the area and the texts of a docstring; empty if it has no area, reveals it, or is too short."""
    package = docstring.module.partition(".")[0]
    usable = [sentence.split() for sentence in docstring.opening if USABLE.fullmatch(sentence)]
    long = max(usable, key=len, default=[])
    words = list(itertools.chain(*usable[:2]))
    excerpt, first, middle = " ".join(words), words[:16], len(long) // 2
    is_fit = len(long) >= 8 and len(docstring.heading) <= 100 and package.lower().strip("_") not in excerpt.lower()
    if package not in AREA_OF or not is_fit:
        return {}
    kept = sorted(generator.sample(range(len(first)), len(first) // 2))
    return {
        "classification": (AREA_OF[package], excerpt, ""),
        "entailment": (AREA_OF[package], docstring.heading, excerpt),
        "similarity": (AREA_OF[package], " ".join(first), " ".join(first[place] for place in kept)),
        "choice": (AREA_OF[package], " ".join(long[:middle]), " ".join(long[middle:])),
    }


def _rows(task: str, members: list[Member], most: int, generator: random.Random) -> list[Row]:
    rows: list[Row] = []
    if task == "classification":
        areas = sorted({area for area, _, _ in members})
        for area in areas:
            rows += [(text, area) for own, text, _ in members if own == area][: most // len(areas)]
    elif task == "choice":  # the beginnings of four sentences, each with all four endings, in one order
        for group in _alike(members, 4, most // 4, generator):
            generator.shuffle(group)
            endings = [ending for _, _, ending in group]
            rows += [(beginning, *endings, str(number)) for number, (_, beginning, _) in enumerate(group, start=1)]
    else:  # couples of pairs, alternately unchanged and with their second texts exchanged
        same, other = ("yes", "no") if task == "entailment" else ("a copy", "another text")
        couples = _alike(members, 2, most // 2, generator)
        for number, ((_, a, of_a), (_, b, of_b)) in enumerate(couples[: len(couples) // 2 * 2]):
            rows += [(a, of_a, same), (b, of_b, same)] if number % 2 else [(a, of_b, other), (b, of_a, other)]
    return rows


def _alike(members: list[Member], size: int, most: int, generator: random.Random) -> list[list[Member]]:
    """At most `most` groups of `size` whose second texts have nearly equal length, each from a different area."""
    # One member for each second text: the same words must not be both right and wrong.
    distinct = {sentence_key(member[2]): member for member in members}.values()
    known = sorted(((len(member[2].split()), member) for member in distinct), key=lambda pair: pair[0])
    groups: list[list[Member]] = []
    start = 0
    while start + size <= len(known):
        group = known[start : start + size]
        fits = len({member[0] for _, member in group}) == size and group[-1][0] - group[0][0] <= 3
        if fits:
            groups.append([member for _, member in group])
        start += size if fits else 1
    generator.shuffle(groups)
    return groups[:most]
