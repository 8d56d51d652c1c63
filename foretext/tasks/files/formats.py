"""Published layouts of data sets, such as `--format sst2`. `FORMATS` is the whole list; the readers are in
`format_readers.py`.
"""

from dataclasses import dataclass
from pathlib import Path

from foretext.errors import refuse_if
from foretext.tasks.files.format_readers import (
    NLI,
    Reader,
    Source,
    cbt_records,
    copa_records,
    glue,
    headed,
    headless,
    of_records,
    race_records,
    read_imdb,
    read_scitail,
    read_storycloze,
    read_swag,
    trec,
)
from foretext.text.corpus.tables import Table


@dataclass(frozen=True)
class Format:
    kind: str
    reader: Reader
    description: str
    metric: str | None = None  # the metric of the data set's authors, if it is not the kind's own
    asks: bool = False  # whether the last line of the context is a question, which must not be cut


def read_format(
    path: str | Path, name: str, kind: str, *, errors: str = "strict", notes: list[str] | None = None
) -> Table:
    """Reads `path` in the format `name`, which must be one for the task `kind`."""
    chosen = find_format(name)
    refuse_if(chosen.kind != kind, f"--format {name} holds {chosen.kind} rows, not {kind}; use --task {chosen.kind}")
    path = Path(path)
    table = chosen.reader(Source(path, errors, notes if notes is not None else []))
    refuse_if(not table.rows, f"{path}: no rows found in the layout {name}; check --format")
    return table


def find_format(name: str) -> Format:
    refuse_if(name not in FORMATS, f"--format {name}: no such format; the formats are {', '.join(sorted(FORMATS))}")
    return FORMATS[name]


def question_in(text: str, name: str) -> str:
    """The question after the article in a row's text, including its line break, for the format `name`; empty if
    none."""
    _, mark, question = text.rpartition("\n")
    return mark + question if mark and find_format(name).asks else ""


_SICK_PAIR = ("sentence_A", "sentence_B")

FORMATS: dict[str, Format] = {
    "sst2": Format(
        "classification",
        headed({"sentence": "text", "label": "label"}),
        "SST-2 of GLUE: TSV, header `sentence label`",
    ),
    "cola": Format(
        "classification",
        glue(("index", "sentence"), headed({"sentence": "text"}), headless(("source", "label", "star", "text"))),
        "CoLA: TSV without header: source, label, star, sentence",
        metric="matthews",
    ),
    "trec": Format("classification", trec(fine=False), "TREC questions, 6 classes: `COARSE:fine question`, Latin-1"),
    "trec-fine": Format("classification", trec(fine=True), "TREC questions, 50 classes: the same file"),
    "imdb": Format(
        "classification", read_imdb, "IMDb: JSON lines `{id,label,rating,text}`, or aclImdb/train with pos/ and neg/"
    ),
    "chnsenticorp": Format(
        "classification",
        headed({"text_a": "text", "label": "label"}),
        "ChnSentiCorp: TSV, header `label text_a`",
    ),
    "rte": Format(
        "entailment",
        headed({"sentence1": "premise", "sentence2": "hypothesis", "label": "label"}),
        "RTE of GLUE: TSV, header `index sentence1 sentence2 label`",
    ),
    "sick": Format(
        "entailment",
        headed(
            dict(zip(_SICK_PAIR, ("premise", "hypothesis")))
            | {"entailment_judgment": "label", "entailment_label": "label"}
        ),
        "SICK, entailment: TSV with header: SemEval's files, or the authors' SICK.txt",
    ),
    "sick-r": Format(
        "regression",
        headed(dict(zip(_SICK_PAIR, ("text", "text2"))) | {"relatedness_score": "score"}),
        "SICK, relatedness 1 to 5: the same files",
    ),
    "snli": Format(
        "entailment", headed(NLI, unlabelled="-", skip_broken=True), "SNLI: JSON lines or the tab-separated .txt"
    ),
    "mnli": Format(
        "entailment", headed(NLI, unlabelled="-", skip_broken=True), "MultiNLI: JSON lines, .txt, or GLUE's TSV"
    ),
    "qnli": Format(
        "entailment",
        headed({"question": "premise", "sentence": "hypothesis", "label": "label"}),
        "QNLI of GLUE: TSV, header `index question sentence label`",
    ),
    "scitail": Format(
        "entailment", read_scitail, "SciTail: TSV without header (premise, hypothesis, label) or JSON lines"
    ),
    "mrpc": Format(
        "similarity",
        headed({"#1 String": "text1", "#2 String": "text2", "Quality": "label"}),
        "MRPC: msr_paraphrase_*.txt or GLUE's TSV, header `Quality #1 ID #2 ID #1 String #2 String`",
        metric="f1",
    ),
    "qqp": Format(
        "similarity",
        headed({"question1": "text1", "question2": "text2", "is_duplicate": "label"}, skip_broken=True),
        "QQP of GLUE: TSV, header `id qid1 qid2 question1 question2 is_duplicate`",
        metric="f1",
    ),
    "stsb": Format(
        "regression",
        glue(
            ("index", "genre"),
            headed({"sentence1": "text", "sentence2": "text2", "score": "score"}),
            headless(("genre", "file", "year", "id", "score", "text", "text2"), extra=True),
        ),
        "STS-B, 0 to 5: sts-*.csv (tab-separated, no header) or GLUE's TSV",
    ),
    "copa": Format(
        "choice", of_records(copa_records), "COPA: XML; the question (cause or effect) is put after the premise"
    ),
    "storycloze": Format("choice", read_storycloze, "Story Cloze: CSV, four sentences and two endings"),
    "swag": Format(
        "choice",
        read_swag,
        "SWAG: CSV; the choices are the second sentence's beginning with each ending",
    ),
    "cbt": Format(
        "choice",
        of_records(cbt_records),
        "Children's Book Test: text; 20 sentences, a line break and the question, the missing word is XXXXX",
        asks=True,
    ),
    "race": Format(
        "choice",
        of_records(race_records),
        "RACE: a folder of JSON files; the question is put after the article",
        asks=True,
    ),
}
