"""The published layouts, each in a tiny file of its own; with FORETEXT_DATA set, the row counts of the real ones."""

import gzip
import json
import os
from pathlib import Path

import pytest
from complaints import names, refused

from foretext.tasks.files.formats import FORMATS, find_format, question_in
from foretext.tasks.files.rows import KINDS, Row, read_rows, read_task_table

NLI_HEADER = "gold_label\tsentence1_parse\tsentence1\tsentence2\tpairID\n"
XML = '<?xml version="1.0" encoding="UTF-8"?>\n<!DOCTYPE copa-corpus SYSTEM "copa.dtd">\n'
COPA = (
    '<copa-corpus version="1.0"><item id="1" asks-for="cause" most-plausible-alternative="1">'
    "<p>A shadow fell.</p><a1>The sun rose.</a1><a2>Tom &amp; I sat.</a2></item>"
    '<item id="2" asks-for="effect" most-plausible-alternative="2"><p>I ran.</p><a1>x</a1><a2>y</a2></item>'
    "</copa-corpus>"
)
STORY = "InputStoryid,InputSentence1,InputSentence2,InputSentence3,InputSentence4,RandomFifthSentenceQuiz1,"
SWAG = ",video-id,fold-ind,startphrase,sent1,sent2,gold-source,ending0,ending1,ending2,ending3"
CBT = (
    "1 Tom ran .\n2 Ann sat .\n3 `` Go , '' said XXXXX .\tTom\t\tAnn|Bob|Tom\n\n"
    "1 It rained .\n2 XXXXX sat .\tBob\t\tAnn|Bob\n"
)
RACE = {
    "article": "Tom ran.",
    "questions": ["Who ran?", "Tom _ ."],
    "options": [["Ann", "Tom", "Bob", "Eve"], ["sat", "lay", "ran", "ate"]],
    "answers": ["B", "C"],
    "id": "high1.txt",
}


def snli_json(label: str) -> str:
    return json.dumps({"gold_label": label, "sentence1": "A b.", "sentence2": "C.", "pairID": "1"}) + "\n"


# format → file name, content, expected (texts, label) of each row
LAYOUTS: dict[str, tuple[str, str, str | bytes, list[tuple[tuple[str, ...], object]]]] = {
    "sst2": ("sst2", "a.tsv", 'sentence\tlabel\n"good film \t1\nbad\t0\n', [(('"good film ',), "1"), (("bad",), "0")]),
    "sst2 test": ("sst2", "a.tsv", "index\tsentence\n0\tgood\n", [(("good",), None)]),
    "cola": (
        "cola",
        "a.tsv",
        'gj04\t1\t\tHe "sat".\ncj99\t0\t*\tHim sat.\n',
        [(('He "sat".',), "1"), (("Him sat.",), "0")],
    ),
    "cola test": ("cola", "a.tsv", "index\tsentence\n0\tHe sat.\n", [(("He sat.",), None)]),
    "trec": ("trec", "a.label", b"NUM:dist How far is Caf\xe9 ?\n", [(("How far is Café ?",), "NUM")]),
    "trec-fine": ("trec-fine", "a.label", b"NUM:dist How far ?\n", [(("How far ?",), "NUM:dist")]),
    "imdb": (
        "imdb",
        "a.jsonl.gz",
        gzip.compress(b'{"id": "0_3", "label": "neg", "rating": 3, "text": "Bad."}\n', mtime=0),
        [(("Bad.",), "neg")],
    ),
    "chnsenticorp": ("chnsenticorp", "a.tsv", "label\ttext_a\n1\t很好\n", [(("很好",), "1")]),
    "rte": (
        "rte",
        "a.tsv",
        "index\tsentence1\tsentence2\tlabel\n0\tA b.\tC.\tnot_entailment\n",
        [(("A b.", "C."), "not_entailment")],
    ),
    "sick": (
        "sick",
        "a.txt",
        "pair_ID\tsentence_A\tsentence_B\trelatedness_score\tentailment_judgment\n4\tA b\tC\t3.6\tNEUTRAL\n",
        [(("A b", "C"), "NEUTRAL")],
    ),
    "sick of the authors": (
        "sick",
        "SICK.txt",
        "pair_ID\tsentence_A\tsentence_B\tentailment_label\trelatedness_score\n4\tA b\tC\tNEUTRAL\t3.6\n",
        [(("A b", "C"), "NEUTRAL")],
    ),
    "sick-r": (
        "sick-r",
        "a.txt",
        "pair_ID\tsentence_A\tsentence_B\trelatedness_score\tentailment_judgment\n4\tA b\tC\t3.6\tNEUTRAL\n",
        [(("A b", "C"), 3.6)],
    ),
    "snli": ("snli", "a.jsonl", snli_json("neutral") + snli_json("-"), [(("A b.", "C."), "neutral")]),
    "snli txt": (
        "snli",
        "a.txt",
        f"{NLI_HEADER}-\t(x)\tA.\tB.\t1\nentailment\t(x)\tA b.\tC.\t2\n",
        [(("A b.", "C."), "entailment")],
    ),
    "mnli": (
        "mnli",
        "a.tsv",
        "index\tgenre\tsentence1\tsentence2\tlabel1\tgold_label\n0\tfiction\tA b.\tC.\tneutral\tcontradiction\n",
        [(("A b.", "C."), "contradiction")],
    ),
    "mnli json": ("mnli", "a.jsonl", snli_json("entailment"), [(("A b.", "C."), "entailment")]),
    "qnli": (
        "qnli",
        "a.tsv",
        "index\tquestion\tsentence\tlabel\n0\tWho?\tTom.\tentailment\n",
        [(("Who?", "Tom."), "entailment")],
    ),
    "scitail": ("scitail", "a.tsv", "A b.\tC.\tneutral\n", [(("A b.", "C."), "neutral")]),
    "scitail with structure": ("scitail", "a.tsv", "A b.\tC.\tneutral\tC$x\n", [(("A b.", "C."), "neutral")]),
    "scitail json": ("scitail", "a.jsonl", snli_json("entailment"), [(("A b.", "C."), "entailment")]),
    "scitail json called txt": ("scitail", "a.txt", "\n" + snli_json("entailment"), [(("A b.", "C."), "entailment")]),
    "mrpc": (
        "mrpc",
        "a.txt",
        '\ufeffQuality\t#1 ID\t#2 ID\t#1 String\t#2 String\r\n1\t70\t71\t"Yes", he said.\tHe said "yes\r\n',
        [(('"Yes", he said.', 'He said "yes'), "1")],
    ),
    "qqp": (
        "qqp",
        "a.tsv",
        "id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate\n1\t2\t3\tWho?\tWhat?\t0\n4\t5\tcut\n6\t7\t8\tWhy?\t\t0\n",
        [(("Who?", "What?"), "0")],
    ),
    "stsb": (
        "stsb",
        "a.csv",
        'main\tMSR\t2012\t0000\t5.000\tA "b.\tC, d.\nmain\tMSR\t2012\t01\t2.5\tE.\tF.\tsource\tmore\n',
        [(('A "b.', "C, d."), 5.0), (("E.", "F."), 2.5)],
    ),
    "stsb glue": (
        "stsb",
        "a.tsv",
        "index\tgenre\tfilename\tsentence1\tsentence2\tscore\n0\tmain\tMSR\tA.\tB.\t4.75\n",
        [(("A.", "B."), 4.75)],
    ),
    "copa": (
        "copa",
        "a.xml",
        XML + COPA,
        [
            (("A shadow fell. What was the cause?", "The sun rose.", "Tom & I sat."), 0),
            (("I ran. What happened as a result?", "x", "y"), 1),
        ],
    ),
    "storycloze": (
        "storycloze",
        "a.csv",
        f'{STORY}RandomFifthSentenceQuiz2,AnswerRightEnding\ni,A b.,"C, d.",E.,F.,Good end.,Bad end.,2\n',
        [(("A b. C, d. E. F.", "Good end.", "Bad end."), 1)],
    ),
    "swag": (
        "swag",
        "a.csv",
        f'{SWAG},label\n0,v1,3,A b. She,A b.,She,gold,"sits, then runs.",stands.,eats.,sleeps.,2\n',
        [(("A b.", "She sits, then runs.", "She stands.", "She eats.", "She sleeps."), 2)],
    ),
    "swag test": (
        "swag",
        "a.csv",
        f"{SWAG}\n0,v1,3,A b. She,A b.,She,gold,sits.,stands.,eats.,sleeps.\n",
        [(("A b.", "She sits.", "She stands.", "She eats.", "She sleeps."), None)],
    ),
    "cbt": (
        "cbt",
        "a.txt",
        CBT,
        [
            (("Tom ran . Ann sat .\n`` Go , '' said XXXXX .", "Ann", "Bob", "Tom"), 2),
            (("It rained .\nXXXXX sat .", "Ann", "Bob"), 1),
        ],
    ),
    "race": (
        "race",
        "a.txt",
        json.dumps(RACE),
        [
            (("Tom ran.\nWho ran?", "Ann", "Tom", "Bob", "Eve"), 1),
            (("Tom ran.\nTom _ .", "sat", "lay", "ran", "ate"), 2),
        ],
    ),
}


def read(path: Path, name: str, notes: list[str] | None = None, need_labels: bool = True) -> list[Row]:
    return read_rows(path, FORMATS[name].kind, format=name, need_labels=need_labels, notes=notes)


@pytest.mark.parametrize("case", LAYOUTS)
def test_layout(tmp_path: Path, case: str) -> None:
    name, file, content, expected = LAYOUTS[case]
    path = tmp_path / file
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    need_labels = expected[0][1] is not None
    assert [(row.texts, row.label) for row in read(path, name, need_labels=need_labels)] == expected


# what else a predictions file has to carry along, by case
KEPT = {
    "sst2 test": {"index": "0"},
    "cola": {"source": "gj04", "star": ""},
    "rte": {"index": "0"},
    "imdb": {"id": "0_3", "rating": 3},
    "sick": {"pair_ID": "4", "relatedness_score": "3.6"},
    "snli": {"pairID": "1"},
    "mrpc": {"#1 ID": "70", "#2 ID": "71"},
    "stsb": {"genre": "main", "file": "MSR", "year": "2012", "id": "0000"},
    "copa": {"id": "1"},
    "storycloze": {"InputStoryid": "i", "InputSentence1": "A b."},
    "swag": {"video-id": "v1", "fold-ind": "3", "sent2": "She", "ending1": "stands."},
    "race": {"id": "high1.txt", "question": 1},
}


@pytest.mark.parametrize("case", KEPT)
def test_the_other_columns_are_kept(tmp_path: Path, case: str) -> None:
    name, file, content, _ = LAYOUTS[case]
    path = tmp_path / file
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    table = read_task_table(path, FORMATS[name].kind, format=name)
    first = dict(zip(table.columns, table.rows[0]))
    assert KEPT[case].items() <= first.items()
    assert len(table.columns) == len(set(table.columns))


def test_a_column_that_is_called_like_a_field_is_not_taken_for_it(tmp_path: Path) -> None:
    path = tmp_path / "a.tsv"
    path.write_text("text\tsentence\tinput_text\n7\tgood\tx\n")
    table = read_task_table(path, "classification", format="sst2")
    assert table.columns == ("input_input_text", "text", "input_text") and table.rows == [("7", "good", "x")]


def test_blank_cells_beside_the_texts_break_no_row(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("gold_label\tsentence1\tsentence2\tlabel2\nneutral\tA.\tB.\t\n")
    notes: list[str] = []
    assert len(read(path, "snli", notes)) == 1 and not notes


def test_every_format_is_tested_and_of_a_known_kind() -> None:
    assert {layout[0] for layout in LAYOUTS.values()} == set(FORMATS)
    assert {chosen.kind for chosen in FORMATS.values()} <= set(KINDS)


def test_the_documentation_lists_every_format() -> None:
    page = (Path(__file__).parents[3] / "docs" / "labelled-files.md").read_text()
    for name, chosen in FORMATS.items():
        assert f"| `{name}` | {chosen.kind} | {chosen.description} |" in page


def test_skipped_rows_are_counted(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text(snli_json("-") * 3 + snli_json("neutral"))
    notes: list[str] = []
    (row,) = read(path, "snli", notes)
    assert row.where == f"{path} row 4"
    (note,) = notes
    names(note, f"{path}:", "3 rows", "(-)", "skipped")
    path = tmp_path / "b.tsv"
    path.write_text(str(LAYOUTS["qqp"][2]))
    notes = []
    read(path, "qqp", notes)
    (note,) = notes
    names(note, str(path), "2 ", "skipped", f"{path} row 3")


def test_imdb_folder(tmp_path: Path) -> None:
    for label, text in (("pos", "Good."), ("neg", "Bad.")):
        (tmp_path / label).mkdir()
        (tmp_path / label / "0_9.txt").write_text(text)
    rows = read(tmp_path, "imdb")
    assert [(row.texts, row.label) for row in rows] == [(("Bad.",), "neg"), (("Good.",), "pos")]
    with refused(str(tmp_path / "pos"), "neg/*.txt", "aclImdb/train"):
        read(tmp_path / "pos", "imdb")


def test_race_folder_with_subfolders(tmp_path: Path) -> None:
    for level in ("high", "middle"):
        (tmp_path / level).mkdir()
        (tmp_path / level / "1.txt").write_text(json.dumps(RACE))
    rows = read(tmp_path, "race")
    assert len(rows) == 4
    assert rows[3].where == f"{tmp_path / 'middle' / '1.txt'} question 2"


def test_race_questions_are_a_line_each(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text(json.dumps(RACE | {"questions": ["Who\nran?\n", "Tom _ ."]}))
    assert [question_in(row.texts[0], "race") for row in read(path, "race")] == ["\nWho ran?", "\nTom _ ."]
    assert question_in("Tom ran.\nWho ran?", "copa") == ""
    assert question_in("no line break", "race") == ""
    assert question_in("Tom ran . It rained .\nXXXXX sat .", "cbt") == "\nXXXXX sat ."


def test_choices_that_are_numbers_are_not_taken_for_the_label(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text(json.dumps(RACE | {"options": [["2", "3", "4", "5"], ["1", "2"]], "answers": ["B", "A"]}))
    assert [row.label for row in read(path, "race")] == [1, 0]
    path.write_text("1 A .\n2 XXXXX .\t3\t\t2|3|1\n")
    assert [row.label for row in read(path, "cbt")] == [1]
    path.write_text(f"{SWAG},label\n0,v,3,s,A.,,gold,1,0,2,3,0\n")
    assert [row.label for row in read(path, "swag")] == [0]
    path.write_text(json.dumps(RACE | {"options": [["4", "3"], ["1", "2"]], "answers": ["D", "A"]}))
    with refused(f"{path} question 1", "column 'label'", "'4'", "1 to 2"):
        read(path, "race")


def test_a_format_of_another_kind_and_an_unknown_one(tmp_path: Path) -> None:
    with refused("--format rte", "classification", "--task entailment"):
        read_rows(tmp_path / "a.tsv", "classification", format="rte")
    with refused("--format sst3", "cbt, chnsenticorp, cola"):
        find_format("sst3")
    with refused("a.tsv", "--format sst2", "--columns"):
        read_rows(tmp_path / "a.tsv", "classification", format="sst2", columns={"text": "x"})


# format, content, what the error names after the file
BAD: dict[str, tuple[str, str, tuple[str, ...]]] = {
    "other columns": ("sst2", "text\tlabel\na\t1\n", ("column 'sentence'", "text, label", "--format")),
    "no label": ("trec", "How far ?\n", ("row 1", "'COARSE:fine'", "--format")),
    "no item": ("copa", "<copa-corpus/>", ("rows", "copa", "--format")),
    "not XML": ("copa", "<a><b></a>", ("XML", "line 1, column 8", "--format")),
    "COPA without question": ("copa", COPA.replace('"cause"', '"why"'), ("item 1", "asks-for", "'why'", "'cause'")),
    "not JSON": ("race", "{", ("JSON", "line 1 column 2", "--format")),
    "RACE without options": (
        "race",
        json.dumps({"article": "a", "questions": ["b"]}),
        ("article, questions, options",),
    ),
    "RACE answer": ("race", json.dumps(RACE | {"answers": ["B", "?"]}), ("answers (letters", "A")),
    "RACE counts": ("race", json.dumps(RACE | {"answers": ["B"]}), ("questions, options", "answers", "numbers")),
    "SWAG columns": ("swag", "sent1,sent2,ending0\na,b,c\n", ("column 'ending1'", "sent1, sent2, ending0", "--format")),
    "SWAG label": (
        *("swag", f"{SWAG},label\n0,v,3,A She,A,She,gold,a,b,c,d,4\n"),
        ("row 2", "column 'label'", "'4'", "0 to 3"),
    ),
    "CBT without numbers": ("cbt", "Tom ran .\n", ("row 1", "number", "--format")),
    "CBT without question": ("cbt", "1 Tom ran .\n1 Ann sat .\n", ("row 2", "new", "question")),
    "CBT with a gap": ("cbt", "1 A .\n3 XXXXX .\tTom\t\tTom|Bob\n", ("row 2", "3", "2 ")),
    "CBT cut short": ("cbt", f"{CBT}\n1 Tom ran .\n", ("last", "question")),
    "CBT without candidates": ("cbt", "1 A .\n2 XXXXX .\tTom\n", ("row 2", "candidates (a|b|…)", "--format")),
    "CBT answer": ("cbt", "1 A .\n2 XXXXX .\tTom\t\tAnn|Bob\n", ("row 2", "'Tom'", "candidates")),
    "header only": ("sst2", "sentence\tlabel\n", ("rows", "sst2", "--format")),
    "empty": ("cola", "", ("empty",)),
}


@pytest.mark.parametrize("case", BAD)
def test_a_file_that_is_not_the_layout(tmp_path: Path, case: str) -> None:
    name, content, named = BAD[case]
    path = tmp_path / "a.txt"
    path.write_text(content)
    with refused(str(path), *named):
        read(path, name)


def test_xml_entities_are_refused_before_they_expand(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("stolen")
    levels = "".join(f'<!ENTITY l{i} "{f"&l{i - 1};" * 10}">' for i in range(1, 30))
    for declaration in (f'<!ENTITY x SYSTEM "{secret.as_uri()}">', f'<!ENTITY l0 "ha">{levels}'):
        path = tmp_path / "a.xml"
        body = COPA.replace("A shadow fell.", "&x;" if "SYSTEM" in declaration else "&l29;")
        path.write_text(f"<!DOCTYPE copa-corpus [{declaration}]>{body}")
        with refused(str(path), "XML", "'x'" if "SYSTEM" in declaration else "'l0'"):
            read(path, "copa")


REAL = [
    ("sst2", "sst2/train.tsv", 67_349),
    ("sst2", "sst2/dev.tsv", 872),
    ("cola", "cola/in_domain_train.tsv", 8_551),
    ("cola", "cola/in_domain_dev.tsv", 527),
    ("cola", "cola/out_of_domain_dev.tsv", 516),
    ("trec", "trec/train_5500.label", 5_452),
    ("trec-fine", "trec/TREC_10.label", 500),
    ("imdb", "imdb/train.jsonl.gz", 25_000),
    ("imdb", "imdb/test.jsonl.gz", 25_000),
    ("rte", "rte/train.tsv", 2_490),
    ("rte", "rte/dev.tsv", 277),
    ("sick", "sick/SICK_train.txt", 4_500),
    ("sick", "sick/SICK_trial.txt", 500),
    ("sick-r", "sick/SICK_test_annotated.txt", 4_927),
    ("stsb", "sts-b/sts-train.csv", 5_749),
    ("stsb", "sts-b/sts-dev.csv", 1_500),
    ("stsb", "sts-b/sts-test.csv", 1_379),
    ("copa", "copa/copa-dev.xml", 500),
    ("copa", "copa/copa-test.xml", 500),
    ("chnsenticorp", "chnsenticorp/train.tsv", 9_600),
    ("chnsenticorp", "chnsenticorp/dev.tsv", 1_200),
    ("chnsenticorp", "chnsenticorp/test.tsv", 1_200),
]


@pytest.mark.skipif("FORETEXT_DATA" not in os.environ, reason="FORETEXT_DATA (a folder of real data) is not set")
@pytest.mark.parametrize(("name", "file", "count"), REAL)
def test_row_counts_of_the_published_files(name: str, file: str, count: int) -> None:
    rows = read(Path(os.environ["FORETEXT_DATA"]) / file, name)
    assert len(rows) == count
    classes = {"trec": 6, "sick": 3, "copa": 2, "sst2": 2, "cola": 2, "imdb": 2, "rte": 2, "chnsenticorp": 2}
    if name in classes:
        assert len({row.label for row in rows}) == classes[name]
