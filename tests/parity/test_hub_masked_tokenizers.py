"""Tokenizers of BERT's, RoBERTa's and ALBERT's folders in each of their layouts, and what in them cannot be read."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import pytest
from complaints import names
from masked_references import (
    CORPUS,
    SHAPES,
    assert_same_run,
    loaded,
    reference,
    refused,
    tokenizer_of,
    write_folder,
)

from foretext.interop.exchange import export_model, import_model
from foretext.text.tokenizers.unigram import Cleaning, unigram_from_pieces

transformers = pytest.importorskip("transformers")


def test_berts_lines(tmp_path: Path) -> None:
    tokenizer: Any = tokenizer_of("bert")
    folder = write_folder(reference("bert", SHAPES[0], tokenizer.size), "bert", tokenizer, tmp_path / "theirs")
    import_model(folder, tmp_path / "whole")
    (folder / "tokenizer.json").unlink()
    (folder / "vocab.txt").write_text("\n".join(tokenizer.pieces) + "\n", encoding="utf-8")
    import_model(folder, tmp_path / "lines")
    assert_same_run(tmp_path / "whole", tmp_path / "lines")
    settings = folder / "tokenizer_config.json"
    settings.write_text(json.dumps({"do_lower_case": False, "strip_accents": None}))
    cased = loaded(import_model(folder, tmp_path / "cased"))
    assert cased.tokenizer.encode("THE cat") != tokenizer.encode("THE cat")
    assert cased.tokenizer.encode("the cat") == tokenizer.encode("the cat")
    assert cased.config.tokenizer.lower is False
    for said, parts in (
        ({"do_lower_case": False, "strip_accents": True}, ("strip_accents", "true")),
        ({"do_lower_case": True, "strip_accents": False}, ("strip_accents", "false")),
        ({"tokenize_chinese_chars": False}, ("tokenize_chinese_chars", "false")),
        ({"do_lower_case": "yes"}, ("do_lower_case", "yes")),
    ):
        settings.write_text(json.dumps(said))
        refused(folder, "tokenizer_config.json", *parts)
    settings.unlink()
    (folder / "vocab.txt").write_text("\n".join([*tokenizer.pieces, "more"]), encoding="utf-8")
    refused(folder, "vocab.txt", f"{tokenizer.size + 1:,}", f"{tokenizer.size:,}")
    (folder / "vocab.txt").write_text("the\ncat\n", encoding="utf-8")
    refused(folder, "vocab.txt", "[CLS]")


def test_berts_tokenizer_json(tmp_path: Path) -> None:
    tokenizer = tokenizer_of("bert")
    folder = write_folder(reference("bert", SHAPES[0], tokenizer.size), "bert", tokenizer, tmp_path / "theirs")
    path = folder / "tokenizer.json"
    whole = json.loads(path.read_text())
    del whole["model"]["type"]  # as older files have it
    path.write_text(json.dumps(whole))
    assert loaded(import_model(folder, tmp_path / "run")).tokenizer.fingerprint() == tokenizer.fingerprint()
    token = {"id": tokenizer.size, "content": "<e>", "special": False}
    for changes, parts in (
        ({"normalizer": whole["normalizer"] | {"strip_accents": False}}, ("strip_accents", "false")),
        ({"normalizer": whole["normalizer"] | {"handle_chinese_chars": False}}, ("tokenize_chinese_chars",)),
        ({"normalizer": whole["normalizer"] | {"clean_text": False}}, ("normalizer", "BERT's")),
        ({"normalizer": {"type": "Lowercase"}}, ("normalizer", "BERT's")),
        ({"pre_tokenizer": {"type": "Whitespace"}}, ("pre_tokenizer", "BERT's")),
        ({"model": whole["model"] | {"continuing_subword_prefix": "@@"}}, ("continuing_subword_prefix", "'@@'")),
        ({"model": whole["model"] | {"max_input_chars_per_word": 200}}, ("max_input_chars_per_word", "200")),
        ({"model": whole["model"] | {"vocab": {"a": 7}}}, ("ids",)),
        ({"added_tokens": [*whole["added_tokens"], token]}, ("'<e>'",)),
    ):
        path.write_text(json.dumps(whole | changes))
        refused(folder, "tokenizer.json", *parts)
    path.write_text(json.dumps(whole))
    (folder / "tokenizer_config.json").write_text('{"do_lower_case": false}')
    refused(folder, "tokenizer.json", "lowercase", "do_lower_case", "tokenizer_config.json")


def test_robertas_pieces_and_merges(tmp_path: Path) -> None:
    tokenizer: Any = tokenizer_of("roberta")
    assert tokenizer.places is not None
    folder = write_folder(reference("roberta", SHAPES[0], tokenizer.size), "roberta", tokenizer, tmp_path / "theirs")
    import_model(folder, tmp_path / "whole")
    (folder / "tokenizer.json").unlink()
    (folder / "vocab.json").write_text(json.dumps(tokenizer.written() | tokenizer.specials), encoding="utf-8")
    lines = "\n".join(f"{left} {right}" for left, right in tokenizer.merges)
    (folder / "merges.txt").write_text(f"#version: 0.2\n{lines}\n", encoding="utf-8")
    import_model(folder, tmp_path / "pieces")
    assert_same_run(tmp_path / "whole", tmp_path / "pieces")


def varint(value: int) -> bytes:
    return bytes([value]) if value < 128 else bytes([value & 127 | 128]) + varint(value >> 7)


def message(field: int, data: bytes) -> bytes:
    return varint(field << 3 | 2) + varint(len(data)) + data


def spiece(tokenizer: Any) -> bytes:
    """A SentencePiece file with these pieces: special ones are control symbols."""
    made = b""
    for id, (piece, score) in enumerate(zip(tokenizer.pieces, tokenizer.scores)):
        kind = 2 if id == tokenizer.unknown else 3 if piece in tokenizer.specials else 1
        fields = message(1, piece.encode()) + varint(2 << 3 | 5) + struct.pack("<f", score)
        made += message(1, fields + varint(3 << 3) + varint(kind))
    settings = message(2, varint(3 << 3) + varint(1))
    return made + settings + message(3, message(1, b"identity") + varint(3 << 3) + varint(1))


def test_alberts_sentencepiece_file(tmp_path: Path) -> None:
    tokenizer: Any = tokenizer_of("albert")
    folder = write_folder(reference("albert", SHAPES[0], tokenizer.size), "albert", tokenizer, tmp_path / "theirs")
    (folder / "tokenizer.json").unlink()
    (folder / "spiece.model").write_bytes(spiece(tokenizer))
    found = loaded(import_model(folder, tmp_path / "run")).tokenizer
    assert found.specials == tokenizer.specials
    for text in [*CORPUS[:4], "THE CAFÉ"]:
        assert found.encode(text) == tokenizer.encode(text), text
    (folder / "tokenizer_config.json").write_text('{"do_lower_case": true, "keep_accents": true}')
    kept: Any = loaded(import_model(folder, tmp_path / "accents")).tokenizer
    assert not kept.cleaning.strip_accents and kept.cleaning.lower
    (folder / "tokenizer_config.json").write_text('{"keep_accents": 3}')
    refused(folder, "tokenizer_config.json", "keep_accents")


def test_alberts_tokenizer_json(tmp_path: Path) -> None:
    tokenizer = tokenizer_of("albert")
    folder = write_folder(reference("albert", SHAPES[0], tokenizer.size), "albert", tokenizer, tmp_path / "theirs")
    path = folder / "tokenizer.json"
    whole = json.loads(path.read_text())
    assert loaded(import_model(folder, tmp_path / "run")).tokenizer.fingerprint() == tokenizer.fingerprint()
    spaces = {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": " "}  # which transformers' converter adds
    steps = whole["normalizer"]["normalizers"]
    path.write_text(json.dumps(whole | {"normalizer": {"type": "Sequence", "normalizers": [*steps, spaces]}}))
    assert loaded(import_model(folder, tmp_path / "more")).tokenizer.fingerprint() == tokenizer.fingerprint()
    first = whole["pre_tokenizer"]["pretokenizers"]
    for changes, parts in (
        ({"normalizer": {"type": "Sequence", "normalizers": steps[1:]}}, ("normalizer", "ALBERT's")),
        ({"normalizer": None}, ("normalizer", "ALBERT's")),
        ({"pre_tokenizer": {"type": "Whitespace"}}, ("pre_tokenizer", "ALBERT's")),
        ({"pre_tokenizer": first[1] | {"prepend_scheme": "first"}}, ("pre_tokenizer", "ALBERT's")),
        ({"model": whole["model"] | {"byte_fallback": True}}, ("bytes",)),
        ({"model": whole["model"] | {"unk_id": None}}, ("unk_id",)),
        ({"model": whole["model"] | {"vocab": [["a", "b"]] * 2, "unk_id": 0}}, ("'vocab'", "twice")),
        ({"model": whole["model"] | {"vocab": [5]}}, ("'vocab'", "scores")),
    ):
        path.write_text(json.dumps(whole | changes))
        refused(folder, "tokenizer.json", *parts)


def test_alberts_numbers_before_commas(tmp_path: Path) -> None:
    """The one thing that tokenizer.json cannot do: a note says so, and our own file brings it back."""
    letters = [(letter, -8.0) for letter in "▁abcdefgh1234567890,"]
    tokenizer = unigram_from_pieces([*letters, ("▁12,", -2.0), ("▁a", -3.0)], Cleaning(True, True, b""))
    theirs = reference("albert", SHAPES[0], tokenizer.size)
    folder = write_folder(theirs, "albert", tokenizer, tmp_path / "theirs")
    (folder / "foretext_tokenizer.json").write_text(tokenizer.to_json())
    run = import_model(folder, tmp_path / "run")
    assert loaded(run).tokenizer.fingerprint() == tokenizer.fingerprint()
    notes = export_model(run, tmp_path / "out")
    assert len(notes) == 1 and names(notes[0], "tokenizer.json", "1,234")
    there = transformers.AutoTokenizer.from_pretrained(tmp_path / "out", local_files_only=True)
    for text in ("a 12, a", "12 a b"):
        assert there.encode(text, add_special_tokens=False) == tokenizer.encode(text), text
        assert tokenizer.pieces.index("▁12,") not in tokenizer.encode(text)
