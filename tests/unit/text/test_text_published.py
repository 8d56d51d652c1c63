"""Published vocabularies: found in folders and by name, of whichever kind."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from complaints import refused
from spm_files import model

from foretext.text.tokenizers.base import TokenizerConfig
from foretext.text.tokenizers.byte_bpe import ByteBPE
from foretext.text.tokenizers.char_bpe import CharBPE
from foretext.text.tokenizers.published import tokenizer_from_published
from foretext.text.tokenizers.training import train_tokenizer
from foretext.text.tokenizers.unigram import Unigram
from foretext.text.tokenizers.wordpiece import WordPiece

PIECES = "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nthe\n##s\n中\n"
TEXTS = ["the cat sat on the mat, the cat's hat"] * 5


def put(folder: Path, files: dict[str, str | bytes]) -> Path:
    folder.mkdir(exist_ok=True)
    for name, content in files.items():
        (folder / name).write_bytes(content.encode() if isinstance(content, str) else content)
    return folder


def byte_files(vocabulary: str, merges: str, first: bool = True) -> dict[str, str | bytes]:
    trained = train_tokenizer(TEXTS, TokenizerConfig("byte-bpe", 270))
    assert isinstance(trained, ByteBPE)
    ids = trained.written()
    if not first:
        ids = {"<s>": 0, "<pad>": 1, "</s>": 2, "<unk>": 3} | {piece: id + 4 for piece, id in ids.items()}
        ids["<mask>"] = len(ids) + 3
    lines = ["#version: 0.2", *(f"{left} {right}" for left, right in trained.merges), ""]
    return {vocabulary: json.dumps(ids), merges: "\n".join(lines)}


def char_files(vocabulary: str, merges: str) -> dict[str, str | bytes]:
    trained = train_tokenizer(TEXTS, TokenizerConfig("char-bpe", 80, splitter="rules"))
    assert isinstance(trained, CharBPE)
    ids = {piece: id for id, piece in enumerate(trained.pieces)}
    return {vocabulary: json.dumps(ids), merges: "\n".join(f"{left} {right}" for left, right in trained.merges)}


@pytest.mark.parametrize(
    ("files", "kind", "named"),
    [
        (byte_files("encoder.json", "vocab.bpe"), ByteBPE, "encoder.json"),
        (byte_files("vocab.json", "merges.txt"), ByteBPE, "vocab.json"),
        (byte_files("roberta-base-vocab.json", "vocab.bpe", False), ByteBPE, "roberta-base-vocab.json"),
        (byte_files("encoder.json", "vocab.bpe"), ByteBPE, "vocab.bpe"),
        (char_files("encoder_bpe_40000.json", "vocab_40000.bpe"), CharBPE, "encoder_bpe_40000.json"),
        (char_files("vocab.json", "merges.txt"), CharBPE, "vocab.json"),
        ({"vocab.txt": PIECES}, WordPiece, "vocab.txt"),
        ({"bert-base-chinese-vocab.txt": PIECES.replace("\n", "\r\n")}, WordPiece, "bert-base-chinese-vocab.txt"),
        ({"spiece.model": model()}, Unigram, "spiece.model"),
        ({"albert-base-v2-spiece.model": model()}, Unigram, "albert-base-v2-spiece.model"),
    ],
)
def test_in_a_folder_and_by_name(tmp_path: Path, files: dict[str, str | bytes], kind: type, named: str) -> None:
    folder = put(tmp_path / "v", files | {"README.md": "nothing", "config.json": "{}"})
    found = tokenizer_from_published(folder, splitter="rules")
    assert isinstance(found, kind)
    assert tokenizer_from_published(folder / named, splitter="rules").fingerprint() == found.fingerprint()
    assert len(found.encode("the cats")) > 1


def test_ids_that_a_file_leaves_out(tmp_path: Path) -> None:
    folder = put(tmp_path, byte_files("roberta-base-vocab.json", "vocab.bpe", False))
    found = tokenizer_from_published(folder)
    assert found.specials["<mask>"] == found.size - 1 and "madeupword0002" in found.specials


def test_capitals_can_be_said(tmp_path: Path) -> None:
    put(tmp_path, {"vocab.txt": PIECES, "other.model": model()})
    for name in ("vocab.txt", "other.model"):
        said = tokenizer_from_published(tmp_path / name, lower=False)
        assert said.encode("THE") != said.encode("the")
        assert tokenizer_from_published(tmp_path / name).encode("THE") == said.encode("the")


def test_several_in_one_folder_must_be_named(tmp_path: Path) -> None:
    put(tmp_path, {"a-vocab.txt": PIECES, "b-vocab.txt": PIECES})
    with refused(f"{tmp_path}:", "a-vocab.txt, b-vocab.txt"):
        tokenizer_from_published(tmp_path)
    assert tokenizer_from_published(tmp_path / "b-vocab.txt").size == 8


@pytest.mark.parametrize("name", ["", "missing", "missing.txt", "weights.bin"])
def test_no_vocabulary(tmp_path: Path, name: str) -> None:
    put(tmp_path, {"weights.bin": b"\0", "vocab.json": "{}"})
    with refused(f"{tmp_path / name}:", "encoder_bpe_40000.json", "merges.txt", "vocab.txt", "spiece.model"):
        tokenizer_from_published(tmp_path / name)


@pytest.mark.parametrize(
    ("files", "named"),
    [
        ({"vocab.json": "{}"}, ("merges", "vocab.bpe", "merges.txt")),
        ({"vocab.json": '{"a": 0, "b": 0}', "merges.txt": ""}, ("ids", "0 … 1")),
        ({"vocab.json": '{"a": 0, "b": "x"}', "merges.txt": ""}, ("pieces", "ids")),
        ({"vocab.json": '{"a": 0, "b": 99}', "merges.txt": ""}, ("ids", "0 … 1")),
        ({"vocab.json": "[1]", "merges.txt": ""}, ("pieces", "ids")),
        ({"vocab.json": "[" * 100_000, "merges.txt": ""}, ("vocabulary", "recursion")),
        ({"vocab.txt": b"\xff\xfe"}, ("vocabulary", "utf-8", "0xff")),
        ({"vocab.txt": ""}, ("[PAD]", "BERT")),
        ({"spiece.model": b"\xff"}, ("SentencePiece",)),
    ],
)
def test_damaged_files(tmp_path: Path, files: dict[str, str | bytes], named: tuple[str, ...]) -> None:
    put(tmp_path, files)
    path = tmp_path / next(iter(files))
    with refused(f"{path}:", *named):
        tokenizer_from_published(path)
