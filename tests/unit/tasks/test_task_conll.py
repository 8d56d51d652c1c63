"""Tagged sentences from CoNLL files, each layout in a tiny file of its own; with FORETEXT_DATA set, the real ones."""

import gzip
import os
from pathlib import Path

import pytest
from complaints import names, refused
from hypothesis import given, settings
from hypothesis import strategies as st

from foretext.tasks.files.conll import MANY_WORDS, TaggedSentence, conll_text, read_conll
from foretext.tasks.scores.tag_metrics import are_chunk_tags, scheme_of, score_tags

CONLL2000 = "Confidence NN B-NP\nin IN B-PP\n# # B-NP\n\nHe PRP B-NP\n"
CONLL2003 = (
    "-DOCSTART- -X- -X- O\n\nEU NNP I-NP I-ORG\n. . O O\n\n-DOCSTART- -X- O O\nPeter NNP I-NP I-PER\n"
    "Blackburn NNP I-NP I-PER\n\n"
)
CONLLU = (
    "# text = vámonos # allí\n"
    "1-2\tvámonos\t_\t_\t_\t_\t_\t_\t_\t_\n"
    "1\tvamos\tir\tVERB\tV\t_\t0\troot\t_\t_\n"
    "2\tnos\tnosotros\tPRON\tP\t_\t1\tobj\t_\t_\n"
    "2.1\tya\t_\tADV\tA\t_\t_\t_\t_\t_\n"
    "3\t#\t#\tSYM\t_\t_\t1\tdep\t_\t_\n"
    "\n"
    "# text = a lo mejor\n"
    "1\ta lo mejor\ta lo mejor\tADV\tA\tX=1\t0\troot\t_\t_\n"
)


def written(folder: Path, text: str, name: str = "a.txt") -> Path:
    path = folder / name
    path.write_bytes(gzip.compress(text.encode()) if name.endswith(".gz") else text.encode())
    return path


def pairs(sentences: list[TaggedSentence]) -> list[tuple[tuple[str, ...], tuple[str, ...] | None]]:
    return [(sentence.words, sentence.tags) for sentence in sentences]


@pytest.mark.parametrize("format", [None, "conll2000"])
def test_conll2000(tmp_path: Path, format: str | None) -> None:
    path = written(tmp_path, CONLL2000)
    assert read_conll(path, format=format) == [
        TaggedSentence(("Confidence", "in", "#"), ("B-NP", "B-PP", "B-NP"), f"{path} line 1"),
        TaggedSentence(("He",), ("B-NP",), f"{path} line 5"),
    ]


@pytest.mark.parametrize("format", [None, "conll2003"])
def test_conll2003(tmp_path: Path, format: str | None) -> None:
    path = written(tmp_path, CONLL2003)
    assert read_conll(path, format=format) == [
        TaggedSentence(("EU", "."), ("I-ORG", "O"), f"{path} line 3"),
        TaggedSentence(("Peter", "Blackburn"), ("I-PER", "I-PER"), f"{path} line 7"),
    ]
    assert read_conll(path, format=format, column=3)[0].tags == ("I-NP", "O")
    german = written(tmp_path, "Er er PPER I-NC O\nBonn Bonn NE I-NC I-LOC\n")
    assert read_conll(german, format="conll2003")[0].tags == ("O", "I-LOC")


@pytest.mark.parametrize(
    ("name", "format"), [("a.conllu", None), ("a.conllu.gz", None), ("a.txt", "conllu"), ("a", None)]
)
def test_conllu(tmp_path: Path, name: str, format: str | None) -> None:
    path = written(tmp_path, CONLLU, name)
    assert read_conll(path, format=format) == [
        TaggedSentence(("vamos", "nos", "#"), ("VERB", "PRON", "SYM"), f"{path} line 3"),
        TaggedSentence(("a lo mejor",), ("ADV",), f"{path} line 9"),
    ]
    assert [sentence.tags for sentence in read_conll(path, format=format, column=6)] == [("_", "_", "_"), ("X=1",)]
    assert [sentence.tags for sentence in read_conll(path, format=format, column=5, need_tags=False)] == [None, ("A",)]


def test_line_ends_marks_and_blanks_change_nothing(tmp_path: Path) -> None:
    plain = pairs(read_conll(written(tmp_path, CONLL2000)))
    for text in (
        CONLL2000.replace("\n", "\r\n"),
        CONLL2000.replace("\n", "\r"),
        "\ufeff" + CONLL2000,
        "\n\n" + CONLL2000.rstrip("\n"),
        CONLL2000.replace("\n\n", "\n \t\n\n"),
        CONLL2000.replace(" ", "\t"),
        CONLL2000.replace(" ", "  ").replace("\n", " \n"),
    ):
        assert pairs(read_conll(written(tmp_path, text))) == plain, text
    assert pairs(read_conll(written(tmp_path, CONLL2000, "a.txt.gz"))) == plain


def test_a_word_with_a_space_needs_tabs(tmp_path: Path) -> None:
    path = written(tmp_path, "New York\tB-LOC\nis \tO\n")
    assert pairs(read_conll(path)) == [(("New York", "is"), ("B-LOC", "O"))]


def test_words_alone_can_be_predicted_on(tmp_path: Path) -> None:
    path = written(tmp_path, "He\nran\n\nYes\n")
    assert pairs(read_conll(path, need_tags=False)) == [(("He", "ran"), None), (("Yes",), None)]
    assert pairs(read_conll(path, need_tags=False, format="conll2000", column=3))[0] == (("He", "ran"), None)
    path = written(tmp_path, "He PRP\nran VBD\n")
    assert pairs(read_conll(path, need_tags=False, format="conll2000")) == [(("He", "ran"), None)]
    assert pairs(read_conll(path, need_tags=False)) == [(("He", "ran"), ("PRP", "VBD"))]


def test_a_file_without_blank_lines_is_noted(tmp_path: Path) -> None:
    notes: list[str] = []
    path = written(tmp_path, "a O\n" * (MANY_WORDS + 1))
    (sentence,) = read_conll(path, notes=notes)
    assert len(sentence.words) == MANY_WORDS + 1
    (note,) = notes
    names(note, str(path), "blank", "201 words")
    notes.clear()
    read_conll(written(tmp_path, "a O\n" * MANY_WORDS), notes=notes)
    read_conll(written(tmp_path, "a O\n" * 300 + "\na O\n"), notes=notes)
    assert notes == []


def test_bytes_may_be_replaced(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes(b"caf\xe9 O\n")
    notes: list[str] = []
    assert read_conll(path, errors="replace", notes=notes)[0].words == ("caf\ufffd",)
    names(notes[0], str(path), "1 ", "U+FFFD")


def test_an_unknown_format(tmp_path: Path) -> None:
    with refused("--format conll2001", "tagging", "conll2000, conll2003, conllu"):
        read_conll(written(tmp_path, CONLL2000), format="conll2001")


cells = st.text("abXY-#é", min_size=1, max_size=4)
drawn = st.lists(st.lists(st.tuples(cells, cells, cells), min_size=1, max_size=5), min_size=1, max_size=4)


@settings(max_examples=40)
@given(drawn, st.integers(0, 3))
def test_what_is_written_is_read_again(tmp_path_factory: pytest.TempPathFactory, data: list, spaced: int) -> None:
    """`spaced`: in which column cells have a space; in the fourth, in none."""
    data = [[[f"{cell} x" if i == spaced else cell for i, cell in enumerate(row)] for row in rows] for rows in data]
    sentences = [TaggedSentence(tuple(w for w, _, _ in rows), tuple(t for _, t, _ in rows), "here") for rows in data]
    predicted = [[guess for _, _, guess in rows] for rows in data]
    folder = tmp_path_factory.mktemp("conll")
    path = written(folder, conll_text(sentences, predicted))
    assert pairs(read_conll(path, column=2)) == pairs(sentences)
    assert [list(sentence.tags or ()) for sentence in read_conll(path)] == predicted
    bare = [TaggedSentence(sentence.words, None, "here") for sentence in sentences]
    path = written(folder, conll_text(bare, predicted))
    assert [list(sentence.tags or ()) for sentence in read_conll(path, column=2)] == predicted


@pytest.mark.skipif("FORETEXT_DATA" not in os.environ, reason="FORETEXT_DATA (a folder of real data) is not set")
@pytest.mark.parametrize(("file", "count", "words"), [("train.txt", 8_936, 211_727), ("test.txt", 2_012, 47_377)])
def test_the_published_chunks(file: str, count: int, words: int) -> None:
    sentences = read_conll(Path(os.environ["FORETEXT_DATA"]) / "conll2000" / file, format="conll2000")
    tags = [sentence.tags or () for sentence in sentences]
    assert len(sentences) == count and sum(map(len, tags)) == words
    assert scheme_of(tags) == "iob2" and are_chunk_tags({tag for sentence in tags for tag in sentence})
    scores = score_tags(tags, tags)
    assert scores.values == {"f1": 1.0, "precision": 1.0, "recall": 1.0, "accuracy": 1.0}
    if file == "test.txt":
        assert sum(item.support for item in scores.per_class) == 23_852
