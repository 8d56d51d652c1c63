"""Unlabelled text as sentences: lines, rows of tables, the words of files of columns."""

from __future__ import annotations

from pathlib import Path

import pytest
from complaints import names, refused

import foretext as ft
from foretext.tasks.files.conll import read_sentences


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "a.txt").write_text("the dog sees Tom .\n\nthe cat sees Ann and a dog .\n")
    (tmp_path / "b.txt").write_text("a X\ngnu PROPN\n\n" * 3)
    (tmp_path / "c.jsonl").write_text('{"text": "one more"}\n')
    return tmp_path


def test_lines_rows_and_the_words_of_columns(folder: Path) -> None:
    notes: list[str] = []
    heard: list[tuple[int, int]] = []
    sentences = read_sentences([folder], progress=lambda done, total: heard.append((done, total)), notes=notes)
    assert sentences == ["the dog sees Tom .", "the cat sees Ann and a dog .", "one more", "a gnu", "a gnu", "a gnu"]
    columns, left_out = notes
    names(columns, f"{folder / 'b.txt'}:", "column", "3 sentences")
    names(left_out, "1 ", "rows")
    assert heard[-1] == (1, 1)


def test_one_file_or_several(folder: Path) -> None:
    assert ft.read_sentences is read_sentences
    alone = read_sentences(folder / "c.jsonl")
    assert alone == read_sentences(str(folder / "c.jsonl")) == read_sentences([folder / "c.jsonl"]) == ["one more"]
    assert read_sentences(str(folder / "*.jsonl")) == alone


def test_what_cannot_be_read(folder: Path) -> None:
    (folder / "bad.txt").write_bytes(b"a dog\n\xff\n")
    with refused(str(folder / "bad.txt"), "byte 6", "0xff", "UTF-8", "--errors replace"):
        read_sentences(folder / "bad.txt")
    notes: list[str] = []
    assert read_sentences(folder / "bad.txt", "replace", notes=notes) == ["a dog", "\ufffd"]
    (note,) = notes
    names(note, "1 byte", "UTF-8", "replaced")
    with refused("errors", "strict", "replace", "'ignore'"):
        read_sentences(folder / "b.txt", "ignore")
    with refused("nowhere.txt"):
        read_sentences("nowhere.txt")
