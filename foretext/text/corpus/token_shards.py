"""Reading token shards: files of ids, mapped into memory, checked against their manifest before the first is used."""

from __future__ import annotations

import bisect
import dataclasses
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
_REMEDY = "make the token shards again from the text"


class DamagedShards(UserError):
    """`fault` is what is wrong, without what to do."""

    def __init__(self, fault: str) -> None:
        super().__init__(f"{fault}; {_REMEDY}")
        self.fault = fault


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
    tokens: int  # with the tokenizer's `end` after each document
    utf8_bytes: int  # of the text


@dataclass(frozen=True)
class ShardManifest:
    format: int
    tokenizer: str  # fingerprint
    dtype: str
    seed: int
    valid_fraction: float
    split_by: str  # "document", or "tokens" where there is but one document
    rule: str  # how the text was taken apart into documents
    replaced: int
    cut: int
    splits: dict[str, Split]

    def to_json(self) -> str:
        return json.dumps(dataclasses.asdict(self), indent=1, sort_keys=True) + "\n"


def token_dtype(size: int) -> np.dtype:
    """The smallest type, little-endian, that holds the ids of a vocabulary of `size`."""
    return np.dtype("<u2") if size <= 65_536 else np.dtype("<u4")


DTYPES = tuple(token_dtype(size).name for size in (1, 1 << 31))


def read_manifest(folder: Path) -> ShardManifest:
    path = Path(folder) / "manifest.json"
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        if data["format"] != FORMAT:
            raise UserError(f"{path}: format {data['format']!r} is not known here; update foretext")
        splits = {name: data["splits"][name] for name in SPLITS}
        for name, split in splits.items():
            splits[name] = Split(**split | {"shards": tuple(Shard(**shard) for shard in split["shards"])})
        manifest = ShardManifest(**data | {"splits": splits})
        if manifest.dtype not in DTYPES:
            raise ValueError(f"dtype {manifest.dtype!r} is none of {', '.join(DTYPES)}")
    except FileNotFoundError:
        raise DamagedShards(f"{path}: missing") from None
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError, OSError) as error:
        raise DamagedShards(f"{path}: damaged ({type(error).__name__}: {error})") from None
    return manifest


class TokenShards:
    """One split as a single stream of ids, the tokenizer's `end` after each document."""

    def __init__(self, folder: Path, split: str, manifest: ShardManifest, arrays: Sequence[np.ndarray]) -> None:
        self.folder, self.split, self.manifest = folder, split, manifest
        self._arrays = arrays
        self._starts = list(itertools.accumulate((len(array) for array in arrays), initial=0))

    @classmethod
    def open(cls, folder: Path, split: str, *, verify: bool, ids: int | None = None) -> TokenShards:
        """Sizes are always checked; `verify` reads every file once for its SHA-256. `ids`: how many there are; a shard
        that holds another one is refused."""
        assert split in SPLITS
        folder = Path(folder)
        manifest = read_manifest(folder)
        dtype = np.dtype(manifest.dtype).newbyteorder("<")
        arrays = []
        for shard in manifest.splits[split].shards:
            path = folder / shard.name
            if path.parent != folder:
                raise DamagedShards(f"{folder / 'manifest.json'}: {shard.name!r} is not a name of a shard")
            if shard.bytes != shard.tokens * dtype.itemsize:
                raise DamagedShards(f"{folder / 'manifest.json'}: {shard.name} has not the size of its tokens")
            _check(path, shard, verify)
            # A plain view: each slice of a `memmap` makes another one of these, which takes longer than to read it.
            array = np.memmap(path, dtype=dtype, mode="r").view(np.ndarray)
            if ids is not None and int(array.max(initial=0)) >= ids:
                raise DamagedShards(f"{path}: token {int(array.max())} where the vocabulary has {ids}")
            arrays.append(array)
        return cls(folder, split, manifest, arrays)

    def __len__(self) -> int:
        return self._starts[-1]

    def window(self, start: int, length: int) -> np.ndarray:
        """`length` ids (int64) from `start` on; they may come from several files."""
        assert start >= 0 and start + length <= len(self)
        result = np.empty(length, dtype=np.int64)
        filled = 0
        place = bisect.bisect_right(self._starts, start) - 1
        while filled < length:
            offset = start + filled - self._starts[place]
            part = self._arrays[place][offset : offset + length - filled]
            result[filled : filled + len(part)] = part
            filled += len(part)
            place += 1
        return result

    def places(self, id: int) -> np.ndarray:
        """Where `id` stands, rising."""
        found = [np.flatnonzero(array == id) + start for array, start in zip(self._arrays, self._starts)]
        return np.concatenate(found) if found else np.zeros(0, dtype=np.int64)


def _check(path: Path, shard: Shard, verify: bool) -> None:
    try:
        size = path.stat().st_size
        if size != shard.bytes:
            raise DamagedShards(f"{path}: {size} bytes where the manifest has {shard.bytes}")
        if verify:
            with path.open("rb") as file:
                digest = hashlib.file_digest(file, "sha256").hexdigest()
            if digest != shard.sha256:
                raise DamagedShards(f"{path}: damaged, its SHA-256 is not that of the manifest")
    except FileNotFoundError:
        raise DamagedShards(f"{path}: missing") from None
    except OSError as error:
        raise DamagedShards(f"{path}: cannot be read ({error.strerror or error})") from None
