import csv
import json
import re
from collections import Counter
from pathlib import Path

import pytest
from complaints import refused

from foretext.demo.harvest import harvest, sentence_key, sentences
from foretext.demo.tasks import COLUMNS, CORPUS, SPLITS, TASKS, USABLE, DemoData, prepare, split_of

SIZES = {"train": 60, "valid": 20, "test": 40}


@pytest.fixture(scope="module")
def data(site: Path, tmp_path_factory: pytest.TempPathFactory) -> DemoData:
    return prepare(tmp_path_factory.mktemp("data"), seed=3, sizes=SIZES, roots=[site])


def rows(data: DemoData, task: str, split: str) -> list[list[str]]:
    with data.path(task, split).open(newline="") as stream:
        return list(csv.reader(stream))[1:]


def labels(data: DemoData, task: str) -> set[str]:
    return {row[-1] for row in rows(data, task, "train")}


def corpus_of(data: DemoData) -> str:
    return (data.folder / CORPUS).read_text()


def own_words(data: DemoData, task: str, split: str) -> set[str]:
    """The words that begin the fixture's sentences: each stands in one sentence only."""
    return set(re.findall(r"Item\w+", data.path(task, split).read_text()))


def test_files_have_the_documented_columns_and_sizes(data: DemoData) -> None:
    for task in TASKS:
        for split in SPLITS:
            with data.path(task, split).open(newline="") as stream:
                assert tuple(next(csv.reader(stream))) == COLUMNS[task]
            written = rows(data, task, split)
            assert written == [list(row) for row in data.rows[task, split]]
            most = SIZES[split] * (2 if (task, split) == ("entailment", "train") else 1)
            assert 0.7 * most <= len(written) <= most
            assert all(all(row) for row in written)


def test_no_sentence_is_in_two_splits(data: DemoData) -> None:
    by_split = {split: set().union(*(own_words(data, task, split) for task in TASKS)) for split in SPLITS}
    assert all(by_split.values())
    assert not by_split["train"] & by_split["test"]
    assert not by_split["train"] & by_split["valid"]
    assert not by_split["valid"] & by_split["test"]
    assert not set(re.findall(r"Item\w+", corpus_of(data))) & (by_split["valid"] | by_split["test"])


def test_the_corpus_has_nothing_of_the_modules_held_out(data: DemoData, site: Path) -> None:
    corpus = {
        sentence_key(sentence)
        for line in corpus_of(data).splitlines()
        for paragraph in json.loads(line)["text"].split("\n")
        for sentence in sentences(paragraph, set())[0]
    }
    docstrings = harvest([site], seed=3)
    seen = Counter()
    for docstring in docstrings:
        split = split_of(docstring.module, 3)
        for sentence in docstring.opening + docstring.rest:
            assert (sentence_key(sentence) in corpus) == (split == "train"), (docstring.module, sentence)
            seen[split] += 1
    assert set(seen) == set(SPLITS)


def test_a_sentence_of_two_modules_stands_on_one_side_only(site: Path, tmp_path: Path) -> None:
    """Wherever the copy is: before the module that it is borrowed from, or after it."""
    held_out = next(p for p in sorted(site.rglob("part*.py")) if split_of(f"{p.parent.name}.{p.stem}", 3) == "test")
    borrowed = held_out.read_text().split('"""')[1].split(".")[0].strip() + "."
    own = "A paragraph of its own that nobody else has written down so far."
    for first in "az":
        training = next(f"{first}{n}" for n in range(99) if split_of(f"{first}{n}", 3) == "train")
        extra = tmp_path / first
        extra.mkdir()
        (extra / f"{training}.py").write_text(f'"""{own}\n\n{borrowed} And so on it goes with other words.\n"""\n')
        made = prepare(tmp_path / f"out{first}", seed=3, sizes=SIZES, roots=[site, extra])
        known = corpus_of(made) + "".join(made.path(task, "train").read_text() for task in TASKS)
        kept = "".join(made.path(task, split).read_text() for task in TASKS for split in ("valid", "test"))
        assert own in known and (borrowed in known) == (first == "a")
        assert first == "z" or borrowed not in kept


def test_labels_are_balanced(data: DemoData) -> None:
    for task in TASKS:
        for split in SPLITS:
            counts = Counter(row[-1] for row in rows(data, task, split))
            assert set(counts) == labels(data, task)
            assert max(counts.values()) == min(counts.values()), (task, split, counts)
        assert data.guessing(task) == pytest.approx(1 / len(labels(data, task)))


def test_each_text_of_a_pair_stands_in_one_row_only(data: DemoData) -> None:
    for split in SPLITS:
        for task in ("similarity", "entailment"):
            pairs = rows(data, task, split)
            assert len({row[0] for row in pairs}) == len({row[1] for row in pairs}) == len(pairs)


def test_a_choice_is_right_as_often_as_any_other(data: DemoData) -> None:
    right, shown = Counter(), Counter()
    for row in rows(data, "choice", "test"):
        shown.update(row[1:5])
        right[row[int(row[5])]] += 1
    assert all(shown[text] == 4 and right[text] == 1 for text in shown)


def test_choices_are_of_nearly_one_length(data: DemoData) -> None:
    for row in rows(data, "choice", "train"):
        lengths = [len(text.split()) for text in row[1:5]]
        assert max(lengths) - min(lengths) <= 3


def test_the_right_answers_are_right(data: DemoData, site: Path) -> None:
    chunks = [" ".join(one.split()) for path in site.rglob("*.py") for one in path.read_text().split("\n\n\n")]

    def in_one_docstring(*texts: str) -> bool:
        return any(all(text in chunk for text in texts) for chunk in chunks)

    for row in rows(data, "similarity", "test"):
        words = iter(row[0].split())
        assert all(word in words for word in row[1].split()) == (row[2] == "a copy")  # a subsequence, or not
        assert abs(len(row[1].split()) - len(row[0].split()) // 2) <= (0 if row[2] == "a copy" else 3)
    for row in rows(data, "choice", "test"):
        assert [in_one_docstring(row[0], text) for text in row[1:5]] == [str(n) == row[5] for n in range(1, 5)]
    for row in rows(data, "entailment", "test"):
        name = row[0].split(" ", 2)[2].split("(")[0] + "("  # "json: def f(x)" is written "def f(x=1):"
        assert in_one_docstring(name, row[1]) == (row[2] == "yes")


def test_classification_leaves_out_unknown_packages_and_giveaways(data: DemoData, site: Path, tmp_path: Path) -> None:
    assert labels(data, "classification") == {"network", "mathematics", "text", "concurrency", "files and system"}
    extra = tmp_path / "numpy"
    extra.mkdir()
    parts = [f'def f{n}():\n    """The numpy {"abcdefghij"[n] * 5} of everything that is here."""\n' for n in range(10)]
    for name in "abcdef":
        (extra / f"{name}.py").write_text("\n".join(parts).replace("here", f"in {name * 4}"))
    made = prepare(tmp_path / "out", seed=3, sizes=SIZES, roots=[site, tmp_path])
    texts = " ".join(made.path("classification", split).read_text() for split in SPLITS)
    assert "numpy" not in texts
    assert "The numpy" in corpus_of(made)


def test_repeatable_and_seeded(data: DemoData, site: Path, tmp_path: Path) -> None:
    again = prepare(tmp_path / "again", seed=3, sizes=SIZES, roots=[site])
    other = prepare(tmp_path / "other", seed=4, sizes=SIZES, roots=[site])
    for key in data.rows:
        assert data.path(*key).read_bytes() == again.path(*key).read_bytes() != other.path(*key).read_bytes()
    assert corpus_of(data) == corpus_of(again)


def test_too_little_text_is_one_clear_line(tmp_path: Path) -> None:
    (tmp_path / "only.py").write_text('"""One docstring is not enough to make four tasks of."""\n')
    with refused(next(iter(TASKS)), "rows", "numpy", "scikit-learn"):
        prepare(tmp_path / "out", sizes=SIZES, roots=[tmp_path])


def test_usable_sentences() -> None:
    assert USABLE.fullmatch("Return the number of open files here.")
    for bad in (
        "Too short.",
        "no capital letter at the start here.",
        "No full stop at the end of this",
        "See http://example.org for all of the rest.",
        "A[0] == B[1] + {c: 2} | 0x3f ** 7 -- 8 //.",
        "Word " * 40 + "end.",
    ):
        assert not USABLE.fullmatch(bad), bad
