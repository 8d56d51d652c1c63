"""GPT's ids against a literal, slow reading of the original order: ftfy, standardise, spaCy on cased text, lower, BPE.

The reference shares no code with the package. Its ids for our own sentences are stored in gpt1_ids.json, so that a
change of a library shows; `python tests/parity/test_gpt1_ids.py VOCABULARY_FOLDER` writes them anew.
"""

from __future__ import annotations

import gzip
import itertools
import json
import os
import re
import sys
from pathlib import Path

import pytest

STORED = Path(__file__).with_name("gpt1_ids.json")

SENTENCES = [
    "The clerk didn't say \"no\"; she said — after a while — that it couldn't be done.",
    "First line.\nSecond line…\n\n\n   Third line, after two blank ones.",
    "Mail me at someone@example.org or see https://example.org/a_b?c=d&e=f#g (it's free!!!).",
    "Crème brûlée, naïve façade, Øresund, straße, İstanbul and ΑΘΗΝΑ.",
    "He paid $1,234.50 on 3/4/2017 at 5:30p.m. for 12-inch pipes (20% off)...",
    "我喜欢在早上喝茶。She likes coffee, though.",
    "I'll, we've, they're, o'clock, rock'n'roll, 'tis, y'all'd've, ain't, cannot, gonna",
    "‘Curly’ and “double” quotes, an em—dash, an en–dash, a bar ― and an acute ´s.",
    "uncharacteristically antidisestablishmentarian xqzjkv THE END",
    "The file is C:\\temp\\new_file[1].txt {really} | yes ~ no + more * less _under_",
    "Emoji \U0001f600 here, a\ttab, a\u00a0hard space, a zero\u200bwidth space, \u0928\u092e\u0938\u094d\u0924\u0947.",
    "&lt;b&gt;Mojibake: schÃ¶n, donâ€™t.&lt;/b&gt; <br /><br /> e.g. Mr. Smith, U.S.A. vs. U.K.",
    "   leading and trailing space   ",
    "<|endoftext|> <unk> </w> stay what they spell",
    "lines\r\nwith carriage\r\nreturns\n",
]


class LiteralReference:
    def __init__(self, folder: Path) -> None:
        import spacy

        self.nlp = spacy.blank("en")
        self.encoder = json.loads((folder / "encoder_bpe_40000.json").read_text(encoding="utf-8"))
        lines = (folder / "vocab_40000.bpe").read_text(encoding="utf-8").split("\n")[1:-1]
        self.ranks = {tuple(line.split()): rank for rank, line in enumerate(lines)}

    def encode(self, text: str) -> list[int]:
        import ftfy

        ids = []
        for token in self.nlp(self.standardise(ftfy.fix_text(text))):
            ids += [self.encoder.get(symbol, 0) for symbol in self.bpe(token.text.lower()).split(" ")]
        return ids

    @staticmethod
    def standardise(text: str) -> str:
        for old, new in (("—", "-"), ("–", "-"), ("―", "-"), ("…", "..."), ("´", "'")):
            text = text.replace(old, new)
        signs = r"""(-+|~+|!+|"+|;+|\?+|\++|,+|\)+|\(+|\\+|\/+|\*+|\[+|\]+|}+|{+|\|+|_+)"""
        text = re.sub(signs, r" \1 ", text)
        text = re.sub(r"\s*\n\s*", " \n ", text)
        text = re.sub(r"[^\S\n]+", " ", text)
        return text.strip()

    def bpe(self, token: str) -> str:
        symbols = [*token[:-1], token[-1] + "</w>"]
        while len(symbols) > 1:
            best = min(itertools.pairwise(symbols), key=lambda pair: self.ranks.get(pair, float("inf")))
            if best not in self.ranks:
                break
            merged, i = [], 0
            while i < len(symbols):
                if tuple(symbols[i : i + 2]) == best:
                    merged.append(best[0] + best[1])
                    i += 2
                else:
                    merged.append(symbols[i])
                    i += 1
            symbols = merged
        joined = " ".join(symbols)
        return "\n</w>" if joined == "\n  </w>" else joined


def _data() -> Path:
    data = os.environ.get("FORETEXT_DATA")
    if not data or not (Path(data) / "tokenizers" / "gpt1").is_dir():
        pytest.skip("set FORETEXT_DATA to a folder with tokenizers/gpt1 (the published vocabulary)")
    pytest.importorskip("spacy")
    return Path(data)


@pytest.fixture(scope="module")
def data() -> Path:
    return _data()


@pytest.fixture(scope="module")
def reference(data: Path) -> LiteralReference:
    return LiteralReference(data / "tokenizers" / "gpt1")


@pytest.fixture(scope="module")
def ours(data: Path):
    from foretext.text.tokenizers.published import tokenizer_from_published

    return tokenizer_from_published(data / "tokenizers" / "gpt1")


def test_published_size_and_known_ids(ours) -> None:
    assert ours.size == 40_478
    assert ours.pieces[0] == "<unk>" and ours.pieces[40_477] == "\n</w>"
    assert ours.encode("the\nthe") == [481, 40_477, 481]


@pytest.mark.parametrize("number", range(len(SENTENCES)))
def test_stored_ids(number: int, ours, reference: LiteralReference) -> None:
    stored = json.loads(STORED.read_text(encoding="utf-8"))
    assert [entry["text"] for entry in stored] == SENTENCES
    assert reference.encode(SENTENCES[number]) == stored[number]["ids"], "the reference itself has changed"
    assert ours.encode(SENTENCES[number]) == stored[number]["ids"]


def real_texts(data: Path) -> list[str]:
    with gzip.open(data / "imdb" / "train.jsonl.gz", "rt", encoding="utf-8") as file:
        reviews = [json.loads(next(file))["text"] for _ in range(150)]
    wiki = (data / "wikitext-2" / "valid.txt").read_text(encoding="utf-8")
    sst = (data / "sst2" / "dev.tsv").read_text(encoding="utf-8").split("\n")[1:201]
    return [*reviews, *(wiki[i : i + 2_000] for i in range(0, 200_000, 2_000)), *(row.split("\t")[0] for row in sst)]


def test_real_text(data: Path, ours, reference: LiteralReference) -> None:
    cached: dict[str, str] = {}
    literal = reference.bpe
    reference.bpe = lambda token: cached[token] if token in cached else cached.setdefault(token, literal(token))
    texts = real_texts(data)
    assert len(texts) > 400
    for text in texts:
        assert ours.encode(text) == reference.encode(text), text


if __name__ == "__main__":
    maker = LiteralReference(Path(sys.argv[1]))
    entries = [json.dumps({"text": text, "ids": maker.encode(text)}, ensure_ascii=False) for text in SENTENCES]
    STORED.write_text("[\n" + ",\n".join(entries) + "\n]\n", encoding="utf-8")
