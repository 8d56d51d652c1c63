"""The attention of every layer and head over one text, as a self-contained HTML page.

Rows are the attending tokens, columns the tokens they attend to; the triangle above the diagonal, which a causal model
cannot see, is hatched. A selected token's weights are shown on the text itself. For a run that translates (CoVe), rows
are the words of the translation and columns those of the text.
"""

from __future__ import annotations

import html
import json
from collections.abc import Sequence
from dataclasses import replace
from typing import NotRequired, TypedDict

import numpy as np
import torch

from foretext.errors import refuse_if
from foretext.evaluate.translation import translation_attention
from foretext.runs.model import SavedModel
from foretext.runs.reading import Reading, read_as, told_apart
from foretext.tasks.family import family_of

MOST_TOKENS = 128  # a larger picture would be unreadable, and the page grows with the square


class PageData(TypedDict):
    """What the page's script reads. `weights`: for each layer and head the rows, in tenths of a per cent."""

    pieces: list[str]  # the tokens or words that are attended to
    rows: NotRequired[list[str]]  # those that attend, if they are others
    layers: int
    heads: int
    weights: list[list[list[list[int]]]]


def attention_page(model: SavedModel, text: str, target: str | None = None) -> str:
    """The page for `text`. A causal model reads it after end-of-text, if it has that token: there a head can rest.
    `target`: for a run that translates, a translation to show instead of the run's own."""
    if model.system.learns_from == "pairs":
        return _translation_page(model, text, target)
    refuse_if(
        target is not None, f"--target is for a run that translates (cove), but this one is of {model.system.name}"
    )
    refuse_if(not model.trunk.attends, f"{model.system.name} has no attention to show")
    reading = _sequence(model, text)
    ids = reading.ids
    most = min(MOST_TOKENS, model.model_config.reads)
    refuse_if(
        not 2 <= len(ids) <= most,
        f"the text has {len(ids)} tokens, but the page shows between 2 and {most}: give a longer or shorter text",
    )
    # Segments are only for trunks that distinguish them: a single text has one segment otherwise.
    given = [torch.tensor(part, device=model.device) for part in (ids, reading.segments) if part]
    weights = model.trunk.eval().attention_weights(*given).cpu().numpy()
    pieces = [model.tokenizer.piece(number) for number in ids]
    way = ", which reads from right to left" if model.info.direction == "backward" else ""
    return render(pieces, weights, f"{model.system.name} {model.info.size}{way}", model.system.causal)


def _translation_page(model: SavedModel, text: str, target: str | None) -> str:
    refuse_if(
        target is not None and not target.strip(),
        "--target has no words; give a translation, or leave it out for the run's own",
    )
    _check_words("text", len(model.tokenizer.encode(text)))
    (attention,) = translation_attention(model, [text], targets=None if target is None else [target])
    _check_words("translation", len(attention.target))
    title = f"{model.system.name} {model.info.size}"
    return render_translation(attention.source, attention.target, attention.weights, title, attention.unknown)


def _check_words(what: str, words: int) -> None:
    refuse_if(
        not 1 <= words <= MOST_TOKENS,
        f"the {what} has {words} words, but the page shows between 1 and {MOST_TOKENS}: give another text",
    )


def _sequence(model: SavedModel, text: str) -> Reading:
    """What the model reads of a text, in its reading direction; a fine-tuned model adds the tokens of its task. Nothing
    is cut: a text that is too long is refused."""
    ids = model.tokenizer.encode(text)
    if model.task is not None and model.task.pools:
        refuse_if(
            model.task.kind not in family_of(model.task.kind).single_texts,
            f"the task of this run, {model.task.kind}, reads several texts, but the page shows models of a single text",
        )
        frame = model.layout.frame(ids)
        return Reading(list(frame.ids), *frame.parts[0], told_apart(frame.segments))
    reading = read_as(model, ids)
    if reading.count == len(ids):
        return reading
    return replace(reading, ids=[*reading.ids, *ids[reading.count :]])  # too many tokens, which the caller refuses


def render(pieces: Sequence[str], weights_LHTT: np.ndarray, title: str, causal: bool) -> str:
    """The page for the pieces and the weights of each layer and head. `causal`: a token sees only itself and earlier
    ones."""
    layers, heads, length, _ = weights_LHTT.shape
    levels_LHTT = _levels(weights_LHTT)
    rows = [levels_LHTT[:, :, row, : row + 1 if causal else length].tolist() for row in range(length)]
    weights = [[[of_row[layer][head] for of_row in rows] for head in range(heads)] for layer in range(layers)]
    data: PageData = {"pieces": list(pieces), "layers": layers, "heads": heads, "weights": weights}
    return _page(data, "Where a token looks", title, _HEADS.replace("%SEEN%", _HIDDEN if causal else _OPEN))


def render_translation(
    source: Sequence[str], target: Sequence[str], weights_TS: np.ndarray, title: str, unknown: Sequence[str] = ()
) -> str:
    """The page of a translation: its words attend to those of the source."""
    weights = [[_levels(weights_TS).tolist()]]
    data: PageData = {"pieces": list(source), "rows": list(target), "layers": 1, "heads": 1, "weights": weights}
    about = _WORDS + (f" Not in the vocabulary, so read as unknown: {', '.join(unknown)}." if unknown else "")
    return _page(data, "Where each word of the translation looks", title, html.escape(about))


def _levels(weights: np.ndarray) -> np.ndarray:
    """Weights in tenths of a per cent, as the page stores them."""
    return np.rint(1000 * weights).astype(int)


def _page(data: PageData, head: str, title: str, about: str) -> str:
    """`about` is HTML, the other texts are plain."""
    written = json.dumps(data, ensure_ascii=False, separators=(",", ":")).replace("<", "\\u003c")
    page = _PAGE.replace("%HEAD%", html.escape(head)).replace("%TITLE%", html.escape(title))
    return page.replace("%ABOUT%", about).replace("%DATA%", written)


_HEADS = """Each small square is one head: rows look, columns are looked at, dark is much. %SEEN% Choose a head, then a
token: the text shows how its attention is spread."""
_HIDDEN = "The hatched triangle is what a token cannot see, because it comes later."
_OPEN = "Every token sees all of them, on both sides."
_WORDS = """Each row is a word of the translation, each column a word of the text; dark is much. Choose a word of the
translation: the text below it shows where the decoder looked to write it."""


_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Attention of %TITLE%</title>
<style>
:root { --ink: #1d2433; --paper: #fbfaf7; --line: #d9d5cb; --strong: #b4451f; }
body { margin: 0 auto; max-width: 72rem; padding: 1.5rem; background: var(--paper); color: var(--ink);
       font: 16px/1.5 system-ui, "Noto Sans CJK SC", sans-serif; }
h1 { font-size: 1.3rem; margin: 0 0 .3rem; }
p { margin: .3rem 0 1rem; max-width: 46rem; }
#grid { display: grid; gap: 3px; margin: 1rem 0; width: max-content; }
#grid button { padding: 0; border: 2px solid transparent; background: none; cursor: pointer; line-height: 0; }
#grid button[aria-pressed=true] { border-color: var(--strong); }
#grid:empty { display: none; }
#grid span { font-size: .75rem; align-self: center; padding-right: .4rem; }
#large { border: 1px solid var(--line); max-width: 100%; height: auto; }
.words { margin: 1rem 0; line-height: 2.1; }
.words:empty { display: none; }
.words button, .words span { font: inherit; border: 1px solid var(--line); border-radius: 3px; margin: 0 2px 2px 0;
                             padding: 0 .25rem; color: inherit; white-space: pre; }
.words button { cursor: pointer; }
.words button[aria-pressed=true] { outline: 2px solid var(--strong); }
#shown { font-variant-numeric: tabular-nums; min-height: 1.5rem; }
</style>
</head>
<body>
<h1>%HEAD%: %TITLE%</h1>
<p>%ABOUT%</p>
<div id="grid"></div>
<canvas id="large"></canvas>
<div id="shown" aria-live="polite"></div>
<div id="rows" class="words" role="group" aria-label="the translation"></div>
<div id="text" class="words" role="group" aria-label="the text"></div>
<script type="application/json" id="data">%DATA%</script>
<script>
"use strict";
const data = JSON.parse(document.getElementById("data").textContent);
const shown = pieces => pieces.map(p => p.replace(/ /g, "\\u00b7").replace(/\\n/g, "\\u21b5"));
const visible = shown(data.pieces), looking = data.rows ? shown(data.rows) : visible;
const n = looking.length, m = visible.length, heads = !data.rows;
const side = Math.max(8, Math.min(24, 720 / Math.max(n, m) | 0));
let layer = data.layers - 1, head = 0, token = data.rows ? 0 : n - 1;
const sees = row => data.weights[0][0][row].length;
const weight = (l, h, row, column) => data.weights[l][h][row][column] / 1000;
const colour = w => `rgb(${255 - 75 * w | 0},${250 - 181 * w | 0},${247 - 216 * w | 0})`;

function hatched(context, cell) {
  const tile = document.createElement("canvas");
  tile.width = tile.height = Math.max(4, cell);
  const t = tile.getContext("2d");
  t.fillStyle = "#efece4"; t.fillRect(0, 0, tile.width, tile.height);
  t.strokeStyle = "#d9d5cb"; t.beginPath(); t.moveTo(0, tile.height); t.lineTo(tile.width, 0); t.stroke();
  return context.createPattern(tile, "repeat");
}

function draw(canvas, l, h, cell, margin) {
  canvas.width = m * cell + margin;
  canvas.height = n * cell + margin;
  const c = canvas.getContext("2d");
  const hidden = hatched(c, cell);
  for (let row = 0; row < n; row++) for (let column = 0; column < m; column++) {
    c.fillStyle = column >= sees(row) ? hidden : colour(weight(l, h, row, column));
    c.fillRect(margin + column * cell, margin + row * cell, cell, cell);
  }
  if (!margin) return;
  c.fillStyle = "#1d2433"; c.font = `${Math.min(13, cell - 1)}px system-ui, sans-serif`;
  c.textBaseline = "middle";
  c.textAlign = "right";
  for (let i = 0; i < n; i++) c.fillText(looking[i].slice(0, 14), margin - 4, margin + (i + .5) * cell);
  for (let i = 0; i < m; i++) {
    c.save(); c.translate(margin + (i + .5) * cell, margin - 4); c.rotate(-Math.PI / 2);
    c.textAlign = "left"; c.fillText(visible[i].slice(0, 14), 0, 0); c.restore();
  }
  c.strokeStyle = "#b4451f"; c.lineWidth = 2;
  c.strokeRect(margin, margin + token * cell, sees(token) * cell, cell);
}

function word(text, choose, pressed) {
  const b = document.createElement(choose ? "button" : "span");
  b.textContent = text;
  if (choose) { b.setAttribute("aria-pressed", pressed); b.onclick = choose; }
  return b;
}

function refresh() {
  document.querySelectorAll("#grid button").forEach(b =>
    b.setAttribute("aria-pressed", b.dataset.layer == layer && b.dataset.head == head));
  draw(document.getElementById("large"), layer, head, side, 110);
  const choose = i => () => { token = i; refresh(); };
  if (data.rows) document.getElementById("rows").replaceChildren(
    ...looking.map((piece, i) => word(piece, choose(i), i === token)));
  document.getElementById("text").replaceChildren(...visible.map((piece, i) => {
    const b = word(piece, data.rows ? null : choose(i), i === token);
    if (i >= sees(token)) { b.title = "comes later: hidden"; b.style.opacity = .35; }
    else {
      const w = weight(layer, head, token, i);
      b.style.background = colour(w); b.title = (100 * w).toFixed(1) + " %";
    }
    return b;
  }));
  const of = i => weight(layer, head, token, i);
  const seen = [...Array(sees(token)).keys()].sort((a, b) => of(b) - of(a));
  const most = seen.slice(0, 4).map(i => `${visible[i]} ${(100 * of(i)).toFixed(0)} %`);
  document.getElementById("shown").textContent = (heads ? `Layer ${layer + 1}, head ${head + 1}: ` : "") +
    `\\u201c${looking[token]}\\u201d looks at ${most.join(", ")}`;
}

const grid = document.getElementById("grid");
grid.style.gridTemplateColumns = `auto repeat(${data.heads}, auto)`;
for (let l = 0; heads && l < data.layers; l++) {
  const label = document.createElement("span"); label.textContent = `layer ${l + 1}`; grid.append(label);
  for (let h = 0; h < data.heads; h++) {
    const b = document.createElement("button"), c = document.createElement("canvas");
    b.dataset.layer = l; b.dataset.head = h; b.setAttribute("aria-label", `layer ${l + 1}, head ${h + 1}`);
    draw(c, l, h, Math.max(1, Math.min(4, 72 / n | 0)), 0);
    b.append(c); b.onclick = () => { layer = l; head = h; refresh(); };
    grid.append(b);
  }
}
document.getElementById("large").onclick = event => {
  const box = event.target.getBoundingClientRect(), scale = event.target.width / box.width;
  const row = Math.floor(((event.clientY - box.top) * scale - 110) / side);
  if (row >= 0 && row < n) { token = row; refresh(); }
};
refresh();
</script>
</body>
</html>
"""
