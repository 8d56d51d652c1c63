"""Faults 17, 18 and 24 in files of tagged sentences and of questions: one line that says what, where and what to do."""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from complaints import names, refused

from foretext.tasks.files import squad
from foretext.tasks.files.conll import read_conll
from foretext.tasks.files.rows import read_rows
from foretext.tasks.files.squad import read_squad

UNIVERSAL = "1\tHe\the\tPRON\t_\t_\t2\tnsubj\t_\t_\n"

# the file's bytes, how it is read, what the message must name
BAD_TAGS: dict[str, tuple[bytes, dict[str, Any], list[str]]] = {
    "one column less": (
        b"He PRP B-NP\nran VBD B-VP\n. O\n",
        {},
        ["a.txt line 3: ", "2 columns", "line 1", "3", "space"],
    ),
    "one column more": (b"He\tO\n\nNew\tYork\tB-LOC\n", {}, ["a.txt line 3: ", "3 columns", "line 1", "2", "tab"]),
    "no column but the word": (b"He O\nran\n", {}, ["a.txt line 2: ", "1 column", "line 1", "2", "space"]),
    "not the format's columns": (b"He O\n", {"format": "conll2000"}, ["a.txt line 1: ", "2 columns", "format", "3"]),
    "neither of two": (b"He O\n", {"format": "conll2003"}, ["a.txt line 1: ", "2 columns", "4 or 5"]),
    "CoNLL-U with spaces": (
        UNIVERSAL.replace("\t", " ").encode(),
        {"format": "conllu"},
        ["a.txt line 1: ", "1 column", "format", "10", "tab"],
    ),
    "CoNLL-U with a word for a column": (
        f"{UNIVERSAL}2\truns\n".encode(),
        {},
        ["a.txt line 2: ", "2 columns", "line 1", "10", "tab"],
    ),
    "no tags": (b"He\nran\n", {}, ["a.txt line 1: ", "1 column", "tag", "space"]),
    "a blank tag": (b"He\tO\nran\t\n", {}, ["a.txt line 2: ", "'ran'", "tag", "column 2"]),
    "an unspecified tag": (UNIVERSAL.encode(), {"column": 5}, ["a.txt line 1: ", "'He'", "tag", "column 5"]),
    "a blank word": (b"He\tO\n\tO\n", {}, ["a.txt line 2: ", "word", "blank"]),
    "no such column": (b"He O\n", {"column": 3}, ["a.txt line 1: ", "column 3", "tag", "are 2"]),
    "the word's column": (b"He O\n", {"column": 1}, ["--columns tag=1: ", "word"]),
    "column 0": (b"He O\n", {"column": 0}, ["--columns tag=0: ", "word"]),
    "empty": (b"", {}, ["a.txt: ", "empty"]),
    "blank": (b"\n \n\n", {}, ["a.txt: ", "blank"]),
    "nothing but documents": (b"-DOCSTART- -X- O O\n\n", {}, ["a.txt: ", "sentences"]),
    "nothing but comments": (b"# newdoc\n\n# text\n", {"format": "conllu"}, ["a.txt: ", "sentences"]),
    "latin-1": (b"He O\ncaf\xe9 O\n", {}, ["a.txt byte 8: ", "0xe9", "line 2", "UTF-8", "--errors replace"]),
    "utf-16": ("He O\n".encode("utf-16"), {}, ["a.txt byte 0: ", "UTF-16", "UTF-8"]),
    "nul": (b"He O\na\x00b O\n", {}, ["a.txt byte 6: ", "NUL", "line 2", "--errors replace"]),
    "no such format": (b"He O\n", {"format": "sst2"}, ["--format sst2: ", "tagging", "conll2000, conll2003, conllu"]),
}


@pytest.mark.parametrize("case", BAD_TAGS)
def test_a_bad_file_of_tags_gives_one_clear_line(tmp_path: Path, case: str) -> None:
    data, options, wanted = BAD_TAGS[case]
    path = tmp_path / "a.txt"
    path.write_bytes(data)
    with refused(*wanted) as caught:
        read_conll(path, **options)
    assert caught.value.code == 2


# sentences where columns of words and tags should be
SENTENCES = {
    "equally many words": "dogs chase cats\nbirds eat worms\nchildren like games\n" * 2,
    "the same few last words": "the dog sees Tom\nthe cat sees Ann\n" * 4,
    "ends of sentences": "the dog sleeps .\nthe cat sleeps .\na dog sleeps .\nthis dog sleeps .\n",
    "a blank line after each": "dogs chase cats\n\nbirds eat worms\n\nchildren like games\n\nmen want peace\n\n",
    "unequally many words": "the dog sees Tom .\nthe cat sees Ann and a dog .\n" * 3,
    "paragraphs": "It was late.\nHe went home and slept.\n\nThe next day, he rose.\nNobody knew why, at all.\n",
    "no spaces": "这部电影很好看。\n我不喜欢这个故事。\n演员都很好。\n他们昨天来了。\n",
    "no spaces, hardly": "这部电影很好看。\n我 不喜欢这个故事。\n演员都很好。\n他们昨天来了。\n",
}


@pytest.mark.parametrize("case", SENTENCES)
def test_running_text_is_not_learned_as_tags(tmp_path: Path, case: str) -> None:
    path = tmp_path / "a.txt"
    path.write_text(SENTENCES[case], encoding="utf-8")
    with refused("a.txt: ", "--columns tag=NUMBER", "--unlabelled", "--system cvt"):
        read_conll(path)
    with refused("a.txt: ", "--columns tag=NUMBER", "input") as caught:
        read_conll(path, need_tags=False)
    assert "--unlabelled" not in str(caught.value)


REAL = "Confidence NN B-NP\nin IN B-PP\nthe DT B-NP\npound NN I-NP\nis VBZ B-VP\nwidely RB I-VP\n"
# columns that have something of running text: sentences, their words, tags, options
COLUMNS: dict[str, tuple[str, int, int, int, dict[str, Any]]] = {
    "CoNLL-2000": (f"{REAL}. . O\n\n{REAL}", 2, 13, 6, {}),
    "its one sentence": (REAL, 1, 6, 5, {}),
    "by its name": (REAL, 1, 6, 5, {"format": "conll2000"}),
    "CoNLL-2003": ("-DOCSTART- -X- O O\n\nEU NNP I-NP I-ORG\nrejects VBZ I-VP O\n. . O O\n\n" * 2, 2, 6, 2, {}),
    "one very short sentence": ("He PRP\nran VBD\nto TO\nParis NNP\n. .\n", 1, 5, 5, {}),
    "two words": ("go verb\nhome noun\n", 1, 2, 2, {}),
    "all O": ("he O\nsees O\nthe O\nold O\nman O\n", 1, 5, 1, {}),
    "chunks in small letters": ("Ann B-per\nsees O\nNew B-geo\nYork I-geo\n", 1, 4, 4, {}),
    "small tags": ("the det\ncat noun\nsees verb\na det\nbig adj\ndog noun\n", 1, 6, 4, {}),
    "lemmas": ("cats cat\nsleep sleep\n\ndogs dog\nate eat\nmice mouse\n", 2, 5, 5, {}),
    "lemmas with tabs": ("cats\tcat\nsleep\tsleep\ndogs\tdog\nate\teat\nmice\tmouse\n", 1, 5, 5, {}),
    "it is said which column": (
        "dogs chase cats\nbirds eat worms\nmen want peace\nwe had fun\n",
        1,
        4,
        4,
        {"column": 3},
    ),
    "morphology": ("Der Case=Nom\nHund Case=Nom\nsah Tense=Past\nihn Case=Acc\n", 1, 4, 3, {}),
    "full stops": ("Ja ITJ\n. .\n\nNein ITJ\n! .\n\nDoch ITJ\n. .\n\n", 3, 6, 2, {}),
}


@pytest.mark.parametrize("case", COLUMNS)
def test_columns_are_not_taken_for_running_text(tmp_path: Path, case: str) -> None:
    text, sentences, words, tags, options = COLUMNS[case]
    path = tmp_path / "a.txt"
    path.write_text(text, encoding="utf-8")
    rows = read_conll(path, **options)
    assert (len(rows), sum(len(one.words) for one in rows)) == (sentences, words)
    assert len({tag for one in rows for tag in one.tags or ()}) == tags


@pytest.mark.parametrize("name", ["a.txt", "a", "a.text.gz"])
def test_running_text_is_no_table_by_another_name(tmp_path: Path, name: str) -> None:
    """What could be a table of some kind is to be renamed; sentences are not."""
    path = tmp_path / name
    for text, table in (
        ("The film was good, and long.\nI slept.\n", False),
        ("Yes, indeed\nIt was good.\n", False),
        ("text,label\nA good film.,1\n", True),
        ("text;label\nA good film;1\n", True),
        ("A good film\t1\n", True),
        (REAL, True),
        ('{"text": "A good film", "label": 1}\n', True),
        ("PK\0\0 and other bytes\n", True),
    ):
        path.write_bytes(gzip.compress(text.encode()) if path.suffix == ".gz" else text.encode())
        wanted = ["rename"] if table else ["labels", "--unlabelled"]
        with refused(f"{name}: ", ".csv, .tsv, .jsonl, .parquet", "--format", *wanted):
            read_rows(path, "classification")


PASSAGE = "Tom ran to the river."


def squad_file(*questions: Any, passage: Any = PASSAGE) -> bytes:
    return json.dumps({"data": [{"paragraphs": [{"context": passage, "qas": list(questions)}]}]}).encode()


def question(**changes: Any) -> dict[str, Any]:
    good = {"id": "q1", "question": "Who ran?", "answers": [{"text": "Tom", "answer_start": 0}]}
    return {name: value for name, value in (good | changes).items() if value is not ...}


def answered(text: Any, start: Any = 0) -> dict[str, Any]:
    return question(answers=[{"text": text, "answer_start": start}])


BAD_QUESTIONS: dict[str, tuple[bytes, list[str]]] = {
    "an answer that is not in its passage": (
        squad_file(answered("Ann")),
        ["a.json question q1: ", "answer 'Ann'", "passage"],
    ),
    "such an answer, long": (squad_file(answered("x" * 500)), ["question q1: ", f"answer '{'x' * 60}…'", "passage"]),
    "an answer in other case": (squad_file(answered("tom")), ["question q1: ", "answer 'tom'", "passage"]),
    "a blank answer": (squad_file(answered(" ")), ["question q1, ", "answer: 'text'", "blank"]),
    "an answer without text": (squad_file(answered(None)), ["question q1, ", "answer: 'text'", "no"]),
    "answers that are no list": (squad_file(question(answers={"text": ["Tom"]})), ["question q1: 'answers'", "list"]),
    "no answers": (squad_file(question(answers=[])), ["question q1: ", "answers", "set 'is_impossible'"]),
    "impossible with an answer": (
        squad_file(question(is_impossible=True)),
        ["question q1: 'is_impossible'", "answers"],
    ),
    "impossible in words": (
        squad_file(question(is_impossible="no")),
        ["question q1: 'is_impossible'", "true", "false", "'no'"],
    ),
    "the same id twice": (
        squad_file(question(), question()),
        ["a.json: ", "id 'q1'", "data[0].paragraphs[0].qas[0]", "data[0].paragraphs[0].qas[1]"],
    ),
    "no id": (squad_file(question(id=...)), ["a.json: data[0].paragraphs[0].qas[0]", "'id'"]),
    "no question": (squad_file(question(question=...)), ["question q1: 'question'", "no"]),
    "a blank question": (squad_file(question(question="  ")), ["question q1: 'question'", "blank"]),
    "a blank passage": (squad_file(question(), passage=""), ["a.json: data[0].paragraphs[0]: 'context'", "blank"]),
    "no passage": (squad_file(question(), passage=None), ["a.json: data[0].paragraphs[0]: 'context'", "no"]),
    "questions that are texts": (squad_file("Who?"), ["a.json: data[0].paragraphs[0].qas[0]", "'id'"]),
    "no questions": (squad_file(), ["a.json: ", "questions", "SQuAD's"]),
    "no data": (b"{}", ["a.json: ", "list 'data'", "SQuAD's"]),
    "a list": (b"[1]", ["a.json: ", "list 'data'", "SQuAD's"]),
    "no paragraphs": (b'{"data": [{}]}', ["a.json: data[0]: ", "list 'paragraphs'", "SQuAD's"]),
    "paragraphs of numbers": (b'{"data": [{"paragraphs": [1]}]}', ["a.json: data[0].paragraphs[0]: 'context'", "no"]),
    "not JSON": (b'{"data": [', ["a.json: ", "JSON", "line 1 column 11"]),
    "nested deeply": (b"[" * 200_000, ["a.json: ", "JSON", "nested"]),
    "a number without end": (b'{"data": ' + b"9" * 10_000 + b"}", ["a.json: ", "JSON", "digits"]),
    "half a pair": (
        squad_file(answered("\ud800")),
        ["question q1, ", "answer: 'text'", "surrogate", "--errors replace"],
    ),
    "nul": (squad_file(question(question="a\0b")), ["question q1: 'question'", "NUL", "--errors replace"]),
    "latin-1": (squad_file(question()).replace(b"Who", b"Wh\xf3"), ["a.json byte 99: ", "0xf3", "UTF-8"]),
    "empty": (b"", ["a.json: ", "empty"]),
}


@pytest.mark.parametrize("case", BAD_QUESTIONS)
def test_a_bad_file_of_questions_gives_one_clear_line(tmp_path: Path, case: str) -> None:
    data, wanted = BAD_QUESTIONS[case]
    path = tmp_path / "a.json"
    path.write_bytes(data)
    with refused(*wanted) as caught:
        read_squad(path)
    assert caught.value.code == 2


def test_the_good_question_is_good(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_bytes(squad_file(question()))
    assert read_squad(path)[0].answers[0].start == 0
    path.write_bytes(squad_file(question(question="a\0b"), passage="Tom \ud800."))
    notes: list[str] = []
    (read,) = read_squad(path, errors="replace", notes=notes)
    assert (read.question, read.passage) == ("a\ufffdb", "Tom \ufffd.") and len(notes) == 1
    names(notes[0], "a.json: ", "2", "U+FFFD")


def test_a_file_that_is_too_large_is_not_unpacked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(squad, "MOST_BYTES", 1_000_000)
    bomb = tmp_path / "a.json.gz"
    bomb.write_bytes(gzip.compress(b" " * 50_000_000))
    assert bomb.stat().st_size < 100_000
    large = tmp_path / "a.json"
    large.write_bytes(b" " * 1_000_001)
    for path in (bomb, large):
        with refused(f"{path}: ", "1 MB", "split"):
            read_squad(path)
    packed = tmp_path / "b.json.gz"
    packed.write_bytes(gzip.compress(squad_file(question())))
    assert len(read_squad(packed)) == 1
    packed.write_bytes(packed.read_bytes()[:-9])
    with refused(f"{packed}: ", "gzip"):
        read_squad(packed)
