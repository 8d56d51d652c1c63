from __future__ import annotations

import hashlib
import json
import os
import random
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from complaints import refused

from foretext.text.corpus import encoding, shard_writing
from foretext.text.corpus.readers import ReadOptions, ReadReport, find_files
from foretext.text.corpus.shard_writing import Sharding, write_shards
from foretext.text.corpus.shards import ShardManifest, TokenShards, read_manifest, token_dtype
from foretext.text.tokenizers import base
from foretext.text.tokenizers.base import END, TokenizerConfig
from foretext.text.tokenizers.byte_bpe import ByteBPE, byte_bpe_from_merges
from foretext.text.tokenizers.training import train_tokenizer

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(scope="module")
def tokenizer() -> ByteBPE:
    return byte_bpe_from_merges([("t", "h"), ("th", "e"), ("Ġ", "the")])


def texts(count: int) -> list[str]:
    draw = random.Random(5)
    return [" ".join(draw.choices(["the", "rose", "中文", "tulip"], k=draw.randint(3, 40))) for _ in range(count)]


def put(folder: Path, documents: list[str], name: str = "a.txt") -> Path:
    path = folder / name
    path.write_text("\n".join(documents), encoding="utf-8")
    return path


def make(path: Path, tokenizer: ByteBPE, out: Path, **changes: object) -> ShardManifest:
    options: dict = {"seed": 1, "valid_fraction": 0.2, "workers": 0} | changes
    sharding = Sharding(
        **{name: options.pop(name) for name in ("seed", "valid_fraction", "shard_bytes") if name in options}
    )
    return write_shards(find_files([path]), ReadOptions(), tokenizer, out, sharding, **options)


def documents_of(folder: Path, split: str, tokenizer: ByteBPE) -> list[str]:
    stream = TokenShards.open(folder, split, verify=True)
    ids = stream.window(0, len(stream))
    ends = np.flatnonzero(ids == tokenizer.specials[END])
    assert len(ids) == 0 or ends[-1] == len(ids) - 1
    parts = np.split(ids, ends + 1)[:-1]
    return [tokenizer.decode(part) for part in parts]


def test_every_document_once_and_counts(tmp_path: Path, tokenizer: ByteBPE) -> None:
    documents = texts(300)
    seen: list[tuple[int, int]] = []
    manifest = make(
        put(tmp_path, documents),
        tokenizer,
        tmp_path / "out",
        progress=lambda a, b: seen.append((a, b)),
        shard_bytes=500,
    )
    train, valid = (documents_of(tmp_path / "out", split, tokenizer) for split in ("train", "valid"))
    assert sorted(train + valid) == sorted(documents)
    assert 30 < len(valid) < 90
    for name, part in (("train", train), ("valid", valid)):
        split = manifest.splits[name]
        assert split.documents == len(part)
        assert split.utf8_bytes == sum(len(text.encode()) for text in part)
        assert split.tokens == sum(len(tokenizer.encode(text)) + 1 for text in part)
        assert len(split.shards) > 5
        for shard in split.shards:
            data = (tmp_path / "out" / shard.name).read_bytes()
            assert (len(data), hashlib.sha256(data).hexdigest()) == (shard.bytes, shard.sha256)
    assert manifest.tokenizer == tokenizer.fingerprint() and manifest.dtype == "uint16"
    assert "line" in manifest.rule and manifest.split_by == "document"
    assert read_manifest(tmp_path / "out") == manifest
    assert seen[-1][0] == seen[-1][1] == (tmp_path / "a.txt").stat().st_size


def test_windows_cross_files(tmp_path: Path, tokenizer: ByteBPE) -> None:
    path = put(tmp_path, texts(50))
    make(path, tokenizer, tmp_path / "one")
    make(path, tokenizer, tmp_path / "many", shard_bytes=100)
    one = TokenShards.open(tmp_path / "one", "train", verify=False)
    many = TokenShards.open(tmp_path / "many", "train", verify=False)
    whole = one.window(0, len(one))
    assert whole.dtype == np.int64 and len(many) == len(one)
    for start in range(0, len(one) - 150, 37):
        assert (many.window(start, 150) == whole[start : start + 150]).all()
    assert len(many.window(len(many), 0)) == 0


def test_workers_change_nothing(tmp_path: Path, tokenizer: ByteBPE, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(base, "BATCH_CHARS", 200)
    path = put(tmp_path, [*texts(100), "x" * 1000, "\x01\U0001f600"])
    manifests = [make(path, tokenizer, tmp_path / f"w{workers}", workers=workers) for workers in (0, 2)]
    assert manifests[0] == manifests[1]


@pytest.mark.parametrize(
    "kind", ["char-bpe", *(pytest.param(kind, marks=pytest.mark.thorough) for kind in ("wordpiece", "unigram"))]
)
def test_other_kinds_in_workers(tmp_path: Path, kind: str) -> None:
    documents = texts(30)
    tokenizer = train_tokenizer(documents, TokenizerConfig(kind, 100, splitter="rules"))
    path = put(tmp_path, documents)
    files = find_files([path])
    made = [
        write_shards(files, ReadOptions(), tokenizer, tmp_path / str(n), Sharding(0, 0.1), workers=n) for n in (0, 1)
    ]
    assert made[0] == made[1]
    stream = TokenShards.open(tmp_path / "0", "train", verify=True)
    ids = stream.window(0, len(stream))
    assert ids[-1] == tokenizer.end
    assert np.count_nonzero(ids == tokenizer.end) == made[0].splits["train"].documents


def test_workers_do_not_load_torch() -> None:
    parts = ("corpus.shards", "order", "tokenizers.training", "tokenizers.char_bpe")
    modules = ", ".join(f"foretext.text.{part}" for part in parts)
    code = f"import sys, {modules}; print('torch' in sys.modules)"
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment)
    assert result.stdout.strip() == "False"


def test_memory_is_bounded_by_the_queue(tokenizer: ByteBPE, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(base, "BATCH_DOCUMENTS", 1)
    drawn = 0

    def documents():
        nonlocal drawn
        for number in range(100):
            drawn += 1
            yield f"document {number}"

    stream = encoding.encode_documents(documents(), tokenizer, 2)
    for taken in range(1, 40):
        batch, ids = next(stream)
        assert batch == [f"document {taken - 1}"] and tokenizer.decode(ids[0]) == batch[0]
        assert drawn <= taken + 5
    stream.close()


def test_a_worker_that_dies_is_an_error(tmp_path: Path, tokenizer: ByteBPE, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(encoding.sys, "executable", "/bin/false")
    with refused("code 1", "memory"):
        make(put(tmp_path, texts(10)), tokenizer, tmp_path / "out", workers=1)
    assert [path.name for path in tmp_path.iterdir()] == ["a.txt"]


# --- the split


def test_split_depends_on_seed_only(tmp_path: Path, tokenizer: ByteBPE) -> None:
    documents = texts(200)
    first, again, other = (
        make(put(tmp_path, documents), tokenizer, tmp_path / f"o{i}", seed=seed) for i, seed in enumerate((1, 1, 2))
    )
    assert first == again
    assert documents_of(tmp_path / "o0", "valid", tokenizer) != documents_of(tmp_path / "o2", "valid", tokenizer)
    assert other.seed == 2


def test_copies_stay_on_one_side(tmp_path: Path, tokenizer: ByteBPE) -> None:
    documents = texts(100)
    make(put(tmp_path, documents * 3), tokenizer, tmp_path / "out")
    train, valid = (set(documents_of(tmp_path / "out", split, tokenizer)) for split in ("train", "valid"))
    assert not train & valid and train | valid == set(documents)


@pytest.mark.parametrize("fraction", [0.0001, 0.9999])
@pytest.mark.parametrize("count", [2, 3, 40])
def test_both_sides_get_a_document(tmp_path: Path, tokenizer: ByteBPE, count: int, fraction: float) -> None:
    manifest = make(put(tmp_path, texts(count)), tokenizer, tmp_path / "out", valid_fraction=fraction)
    assert min(split.documents for split in manifest.splits.values()) == 1
    assert sum(split.documents for split in manifest.splits.values()) == count


def test_a_document_moved_takes_its_later_copies_along(
    tmp_path: Path, tokenizer: ByteBPE, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shard_writing, "_HELD_DOCUMENTS", 10)
    make(put(tmp_path, texts(10) * 4), tokenizer, tmp_path / "out", valid_fraction=1e-6)
    valid = documents_of(tmp_path / "out", "valid", tokenizer)
    assert len(valid) == 4 and len(set(valid)) == 1


def test_copies_of_one_document_only(tmp_path: Path, tokenizer: ByteBPE) -> None:
    manifest = make(put(tmp_path, ["the rose"] * 5), tokenizer, tmp_path / "out")
    assert {name: split.documents for name, split in manifest.splits.items()} == {"train": 4, "valid": 1}


def test_a_single_document_is_cut_by_tokens(tmp_path: Path, tokenizer: ByteBPE) -> None:
    text = " ".join(texts(20))
    manifest = make(put(tmp_path, [text]), tokenizer, tmp_path / "out", valid_fraction=0.1)
    count = len(tokenizer.encode(text))
    assert manifest.split_by == "tokens"
    assert manifest.splits["valid"].tokens == round(count * 0.1) + 1
    assert sum(split.utf8_bytes for split in manifest.splits.values()) == len(text.encode())
    (train,), (valid,) = (documents_of(tmp_path / "out", split, tokenizer) for split in ("train", "valid"))
    assert text.startswith(train[:-1]) and text.endswith(valid[1:])
    ids = [
        int(id) for s in ("train", "valid") for id in TokenShards.open(tmp_path / "out", s, verify=True).window(0, 9)
    ]
    assert ids[:9] == tokenizer.encode(text)[:9]


def test_no_validation(tmp_path: Path, tokenizer: ByteBPE) -> None:
    manifest = make(put(tmp_path, texts(1)), tokenizer, tmp_path / "out", valid_fraction=0.0)
    assert manifest.splits["valid"].tokens == 0 and manifest.splits["train"].documents == 1
    assert len(TokenShards.open(tmp_path / "out", "valid", verify=True)) == 0


def test_large_vocabularies_take_four_bytes() -> None:
    assert token_dtype(65_536).itemsize == 2 and token_dtype(65_537).itemsize == 4


def test_mistakes(tmp_path: Path, tokenizer: ByteBPE) -> None:
    for fraction in (1.0, -0.1):
        with refused("fraction", f"{fraction}"):
            make(put(tmp_path, texts(3)), tokenizer, tmp_path / "out", valid_fraction=fraction)
    with refused(END, "with_specials"):
        make(tmp_path / "a.txt", ByteBPE(tokenizer.alphabet, [], {}), tmp_path / "out")
    with refused("single"):
        make(put(tmp_path, ["the"], "b.txt"), tokenizer, tmp_path / "out")


# --- whole or not at all


def test_replaces_an_earlier_folder(tmp_path: Path, tokenizer: ByteBPE) -> None:
    make(put(tmp_path, texts(50)), tokenizer, tmp_path / "out", shard_bytes=100)
    make(put(tmp_path, texts(5)), tokenizer, tmp_path / "out")
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [
        "manifest.json",
        "train-00000.bin",
        "valid-00000.bin",
    ]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.txt", "out"]


def test_a_fault_in_the_text_leaves_the_earlier_folder(tmp_path: Path, tokenizer: ByteBPE) -> None:
    before = make(put(tmp_path, texts(50)), tokenizer, tmp_path / "out")
    (tmp_path / "bad.txt").write_bytes(b"good\n" * 200_000 + b"\xff")
    for workers in (0, 1):
        with refused(f"{tmp_path / 'bad.txt'} byte 1000000"):
            make(tmp_path / "bad.txt", tokenizer, tmp_path / "out", workers=workers)
    assert read_manifest(tmp_path / "out") == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.txt", "bad.txt", "out"]


def test_sweeps_what_earlier_processes_left(tmp_path: Path, tokenizer: ByteBPE) -> None:
    for name in (".out.staging", ".out.staging-host-12", ".out.old", ".outer.staging"):
        (tmp_path / name).mkdir()
    make(put(tmp_path, texts(5)), tokenizer, tmp_path / "out")
    assert sorted(path.name for path in tmp_path.iterdir()) == [".outer.staging", "a.txt", "out"]


def test_report_is_filled(tmp_path: Path, tokenizer: ByteBPE) -> None:
    report = ReadReport()
    (tmp_path / "a.txt").write_bytes(b"one\xff\ntwo\n")
    options = ReadOptions(errors="replace")
    files = find_files([tmp_path / "a.txt"])
    manifest = write_shards(files, options, tokenizer, tmp_path / "out", Sharding(0, 0.5), workers=0, report=report)
    assert (report.documents, report.replaced, manifest.replaced) == (2, 1, 1)
    assert json.loads((tmp_path / "out" / "manifest.json").read_text())["replaced"] == 1


@pytest.mark.parametrize("seed", range(6))
def test_a_book_is_not_held_out_beside_a_note(tmp_path: Path, tokenizer: ByteBPE, seed: int) -> None:
    book, note = " ".join(texts(200)), "a short note"
    make(put(tmp_path, [book, note]), tokenizer, tmp_path / "out", seed=seed)
    assert documents_of(tmp_path / "out", "valid", tokenizer) == [note]
    make(put(tmp_path, [book, note]), tokenizer, tmp_path / "most", seed=seed, valid_fraction=0.9999)
    assert documents_of(tmp_path / "most", "train", tokenizer) == [book]
