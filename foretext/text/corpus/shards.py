"""Token shards: a corpus as files of ids, with a manifest of sizes and hashes.

For reading, the files are mapped into memory and checked against their manifest before the first id is used.
"""

from __future__ import annotations

import bisect
import hashlib
import itertools
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from foretext.errors import UserError

FORMAT = 1
SPLITS = ("train", "valid")


@dataclass(frozen=True)
class Shard:
    name: str
    tokens: int
    bytes: int
    sha256: str


@dataclass(frozen=True)
class Split:
    shards: tuple[Shard, ...]
    documents: int
    tokens: int  # including the tokenizer's `end` after each document
    utf8_bytes: int  # of the text


@dataclass(frozen=True)
class ShardManifest:
    format: int
    tokenizer: str  # its fingerprint
    dtype: str
    seed: int
    valid_fraction: float
    split_by: str  # "document", or "tokens" if there is only one document
    rule: str  # how the text was split into documents
    replaced: int
    cut: int
    splits: dict[str, Split]


def token_dtype(size: int) -> np.dtype:
    """The smallest little-endian type that holds the ids of a vocabulary of `size`."""
    return np.dtype("<u2") if size <= 65_536 else np.dtype("<u4")


DTYPES = tuple(token_dtype(size).name for size in (1, 1 << 31))


class DamagedShards(UserError):
    """`fault` says what is wrong, without the remedy."""

    def __init__(self, fault: str) -> None:
        super().__init__(f"{fault}; make the token shards again from the text")
        self.fault = fault


def read_manifest(folder: Path) -> ShardManifest:
    path = Path(folder) / "manifest.json"
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        if data["format"] != FORMAT:
            raise UserError(f"{path}: unknown format {data['format']!r}; update foretext")
        splits = {name: data["splits"][name] for name in SPLITS}
        for name, split in splits.items():
            splits[name] = Split(**split | {"shards": tuple(Shard(**shard) for shard in split["shards"])})
        manifest = ShardManifest(**data | {"splits": splits})
        if manifest.dtype not in DTYPES:
            raise ValueError(f"dtype {manifest.dtype!r} must be one of {', '.join(DTYPES)}")
    except FileNotFoundError:
        raise DamagedShards(f"{path}: missing") from None
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError, OSError) as error:
        raise DamagedShards(f"{path}: damaged ({type(error).__name__}: {error})") from None
    return manifest


class TokenShards:
    """One split as a single stream of ids, with the tokenizer's `end` after each document."""

    def __init__(self, folder: Path, split: str, manifest: ShardManifest, arrays: Sequence[np.ndarray]) -> None:
        self.folder, self.split, self.manifest = folder, split, manifest
        self.arrays = arrays
        self._starts = list(itertools.accumulate((len(array) for array in arrays), initial=0))

    @classmethod
    def open(cls, folder: Path, split: str, *, verify: bool, ids: int | None = None) -> TokenShards:
        """Sizes are always checked; `verify` also reads every file for its SHA-256. `ids`: the number of ids; a shard
        that contains a larger one is refused."""
        manifest = read_manifest(folder)
        dtype = np.dtype(manifest.dtype).newbyteorder("<")
        arrays = []
        for shard in manifest.splits[split].shards:
            path = folder / shard.name
            if path.parent != folder:
                raise DamagedShards(f"{folder / 'manifest.json'}: {shard.name!r} is not a valid shard name")
            if shard.bytes != shard.tokens * dtype.itemsize:
                raise DamagedShards(
                    f"{folder / 'manifest.json'}: the size of {shard.name} does not match its number of tokens"
                )
            _check(path, shard, verify)
            # A plain view: each slice of a `memmap` would be another memmap, which takes longer to create than to read.
            array = np.memmap(path, dtype=dtype, mode="r").view(np.ndarray)
            if ids is not None and int(array.max(initial=0)) >= ids:
                raise DamagedShards(f"{path}: token {int(array.max())}, but the vocabulary has {ids}")
            arrays.append(array)
        return cls(folder, split, manifest, arrays)

    def __len__(self) -> int:
        return self._starts[-1]

    def window(self, start: int, length: int) -> np.ndarray:
        """`length` ids (int64) from `start` on, possibly from several files."""
        assert start >= 0 and start + length <= len(self)
        result = np.empty(length, dtype=np.int64)
        filled = 0
        place = bisect.bisect_right(self._starts, start) - 1
        while filled < length:
            offset = start + filled - self._starts[place]
            part = self.arrays[place][offset : offset + length - filled]
            result[filled : filled + len(part)] = part
            filled += len(part)
            place += 1
        return result

    def places(self, id: int) -> np.ndarray:
        """The positions of `id`, in increasing order."""
        positions = [np.flatnonzero(array == id) + start for array, start in zip(self.arrays, self._starts)]
        return np.concatenate(positions) if positions else np.zeros(0, dtype=np.int64)


def _check(path: Path, shard: Shard, verify: bool) -> None:
    try:
        size = path.stat().st_size
        if size != shard.bytes:
            raise DamagedShards(f"{path}: {size} bytes, but the manifest says {shard.bytes}")
        if verify:
            with path.open("rb") as file:
                digest = hashlib.file_digest(file, "sha256").hexdigest()
            if digest != shard.sha256:
                raise DamagedShards(f"{path}: damaged, its SHA-256 differs from the manifest's")
    except FileNotFoundError:
        raise DamagedShards(f"{path}: missing") from None
    except OSError as error:
        raise DamagedShards(f"{path}: cannot be read ({error.strerror or error})") from None
