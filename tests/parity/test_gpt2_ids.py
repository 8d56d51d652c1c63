"""GPT-2's ids against the `tokenizers` library and transformers, both loaded from the same published files."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import tokenizers

from foretext.text.tokenizers.published import tokenizer_from_published

HARD = [
    "",
    " ",
    "Hello world",
    "  two  spaces\n\n\tand tabs \r\n end  ",
    "don't we'll I'VE they'd 'quoted' ''s",
    "中文 日本語 한국어 ไทย नमस्ते \U0001f600\U0001f469\u200d\U0001f680",
    "1234 ½ ² ٣ Ⅻ",
    "\x00\x01\x1f\x7f\x85\xa0\u2028 control",
    "a\x1cb \x1d\x1e c",  # white space to Python, not to Unicode
]


@pytest.fixture(scope="module")
def folder() -> Path:
    data = os.environ.get("FORETEXT_DATA")
    if not data or not (Path(data) / "tokenizers" / "gpt2").is_dir():
        pytest.skip("set FORETEXT_DATA to a folder with tokenizers/gpt2 (the published vocabulary)")
    return Path(data) / "tokenizers" / "gpt2"


@pytest.fixture(scope="module")
def texts(folder: Path) -> list[str]:
    data = folder.parents[1]
    wiki = (data / "wikitext-2" / "test.txt").read_text(encoding="utf-8")
    play = (data / "tinyshakespeare" / "input.txt").read_text(encoding="utf-8")
    chinese = (data / "chnsenticorp" / "dev.tsv").read_text(encoding="utf-8").split("\n")[1:200]
    return [*HARD, *(wiki[i : i + 3_000] for i in range(0, 300_000, 3_000)), play[:200_000], *chinese]


def test_against_tokenizers(folder: Path, texts: list[str]) -> None:
    ours = tokenizer_from_published(folder)
    assert (ours.size, ours.specials) == (50_257, {"<|endoftext|>": 50_256})
    model = tokenizers.models.BPE.from_file(str(folder / "encoder.json"), str(folder / "vocab.bpe"))
    reference = tokenizers.Tokenizer(model)
    reference.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    for text in texts:
        ids = ours.encode(text)
        assert ids == reference.encode(text).ids, text
        assert ours.decode(ids) == text


def test_against_transformers(folder: Path, texts: list[str]) -> None:
    transformers = pytest.importorskip("transformers")
    reference = transformers.GPT2Tokenizer(str(folder / "encoder.json"), str(folder / "vocab.bpe"))
    if len(reference) != 50_257:
        pytest.skip("this version of transformers does not load GPT2Tokenizer from files")
    ours = tokenizer_from_published(folder)
    for text in texts:
        assert ours.encode(text) == reference(text)["input_ids"], text
