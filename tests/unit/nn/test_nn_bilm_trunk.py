"""ELMo's biLM as a trunk: batches of words, of ids with a spelling, and of a text for each direction."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from complaints import refused
from tolerance import close, terms_of
from word_tables import word_table

from foretext.batch import Batch
from foretext.config import build_sections, from_toml, to_toml
from foretext.nn.recurrent.bilm import BilmTrunk, BilmTrunkConfig, SpelledBatch
from foretext.nn.recurrent.char_cnn import CharEncoderConfig

WORDS = CharEncoderConfig(width=3, filter_widths=(1, 2), filter_counts=(3, 4), embedding=2, length=9, highways=1)
CONFIG = BilmTrunkConfig(vocabulary=20, layers=2, cells=5, context=6, dropout=0.0, words=WORDS)
TABLE = word_table([["ab", "c", "ab"], ["d", "c"]], WORDS.length)
ENCODED = terms_of(2 * 2, 7, 7)  # filters over two characters, a highway, the projection
READ = terms_of(ENCODED, (5 + 2) * (3 + 3 + 5))  # and five words and two layers
CHARACTERS, IDS, MASK, BATCH = TABLE.characters_UC, TABLE.places_BT, TABLE.mask_BT, TABLE.batch()


@pytest.fixture
def trunk() -> BilmTrunk:
    torch.manual_seed(0)
    made = BilmTrunk(CONFIG, CHARACTERS.numpy().__getitem__).double()
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.normal_()
    return made


def test_it_is_the_bilm(trunk: BilmTrunk) -> None:
    words = TABLE.encoded(trunk.bilm)
    close(words, trunk.bilm.words(CHARACTERS[IDS]), terms=ENCODED)  # each by itself
    read = trunk.bilm(words, MASK)
    hidden = trunk(BATCH, keep_layers=True)
    assert hidden.state is None and len(hidden.layers) == 3 and torch.equal(hidden.top, read.top)
    assert all(torch.equal(one, other) for one, other in zip(hidden.layers, read.layers))
    assert trunk(BATCH).layers == () and hidden.top.shape[-1] == CONFIG.width
    carried = trunk(BATCH, trunk.new_state(2))
    assert torch.equal(carried.state[1][0][0], read.state[1][0][0])


def test_plain_ids_are_spelled(trunk: BilmTrunk) -> None:
    close(trunk(Batch(IDS, MASK)).top, trunk(BATCH).top, terms=READ)
    with pytest.raises(AssertionError, match="characters"):
        BilmTrunk(CONFIG)(Batch(IDS, MASK))
    characters, places = trunk.spelled(Batch(IDS, MASK))
    assert torch.equal(characters[places], CHARACTERS[IDS])


def test_a_text_for_each_direction(trunk: BilmTrunk) -> None:
    both = SpelledBatch(IDS, MASK, characters_UC=CHARACTERS, back_ids_BT=IDS.flip(0), back_mask_BT=MASK.flip(0))
    hidden, plain = trunk(both, trunk.new_state(2)), trunk(BATCH, trunk.new_state(2))
    close(hidden.top[..., :3], plain.top[..., :3], terms=READ)
    close(hidden.top[..., 3:], plain.top[..., 3:].flip(0), terms=READ)
    for layer, expected in zip(hidden.state[1], plain.state[1]):
        close(layer[0], expected[0].flip(0), terms=READ)
    moved = both.to(torch.device("cpu"))
    assert isinstance(moved, SpelledBatch) and moved.real_tokens == int(MASK.sum())


def test_groups_and_shape(trunk: BilmTrunk) -> None:
    groups = trunk.layer_groups()
    names = [name for name, _ in trunk.named_parameters()]
    assert len(groups) == 3 and sorted(name for group in groups for name in group) == sorted(names)
    assert all("forwards" in " ".join(group) and "backwards" in " ".join(group) for group in groups[1:])
    assert CONFIG.parameters() == sum(parameter.numel() for parameter in trunk.parameters())
    assert CONFIG.activations(80) > CONFIG.activations(40) > 0 and "5 cells" in CONFIG.describe()


def test_its_configuration_is_written_and_read() -> None:
    CONFIG.check()
    again = build_sections({"model": BilmTrunkConfig}, from_toml(to_toml({"model": CONFIG})), "config.toml")
    assert again["model"] == CONFIG
    for changes, named in (
        ({"context": 0}, "model.context"),
        ({"reads": 0}, "model.reads"),
        ({"layers": 0}, "model.layers"),
        ({"init_std": 0.0}, "model.init_std"),
        ({"words": replace(WORDS, length=2)}, "model.words.length"),
    ):
        with refused(named):
            replace(CONFIG, **changes).check()  # type: ignore[arg-type]
