"""METEOR 1.5 through a stand-in for Java: the lines it gets, its answers, and what is missing."""

import os
import sys
import time

import pytest

from rewards import MetricInputError, load
from rewards.overlap import meteor as meteor15

STAND_IN = """#!{python}
import sys
with open({log!r}, "a", encoding="utf-8") as log:
    print(*sys.argv[1:], file=log)
    for line in sys.stdin:
        print(line.strip(), file=log, flush=True)
        kind, *fields = line.split("|||")
        if kind == "SCORE ":
            *golds, text = map(str.split, fields)
            best = max(len(set(gold) & set(text)) for gold in golds)
            {score}
        else:
            values = [float(field.split()[0]) / max(float(field.split()[1]), 1) for field in fields]
            print(*values, sum(values), sep="\\n", flush=True)
"""
ANSWERS = 'print(f"{best} {len(text)}", flush=True)'


@pytest.fixture
def make(tmp_path):
    """Return a function that makes the metric with a program whose answers are words in common / words."""

    def with_program(score: str = ANSWERS, **options):
        jar, java = tmp_path / "meteor-1.5.jar", tmp_path / "java"
        (tmp_path / "data").mkdir(exist_ok=True)
        (tmp_path / "data" / "paraphrase-en.gz").write_bytes(b"")
        jar.write_bytes(b"jar")
        java.write_text(STAND_IN.format(python=sys.executable, log=str(tmp_path / "log"), score=score))
        java.chmod(0o755)
        return load("meteor15", jar=jar, java=str(java), **options)

    with_program.log = tmp_path / "log"
    return with_program


def test_the_lines_of_the_captioning_scripts(make):
    metric = make()
    got = metric.score(["Who built it?", "Why?"], references=[["Who built the mill?", "When?"], ["Why not?"]])
    assert got.scores == [2 / 3, 1.0]
    assert make.log.read_text().splitlines() == [
        f"-Xmx2G -jar {make.log.parent}/meteor-1.5.jar - - -stdio -l en -norm",
        "SCORE ||| who built the mill ||| when ||| who built it",
        "SCORE ||| why not ||| why",
        "EVAL ||| 2 3 ||| 1 1",
    ]
    assert metric.signature.startswith("meteor15|jar:meteor-1.5.jar@") and "|options:-l en -norm|" in metric.signature


def test_a_word_cannot_end_a_field(make):
    assert make(tokenize="space").score(["a|||b  c"], references=[["c ||| d"]]).scores == [0.5]
    assert make.log.read_text().splitlines()[1] == "SCORE ||| c d ||| ab c"


def test_one_program_for_all_calls_and_blocks(make, monkeypatch):
    monkeypatch.setattr(meteor15, "ROWS_AT_ONCE", 2)
    metric = make()
    questions = ["Who?", "Who built it?", "the mill", "it"]
    for _ in range(2):
        assert metric.score([*questions, "Who?"], references=[["Who built it?"]] * 5).scores == [1, 1, 0, 1, 1]
    lines = make.log.read_text().splitlines()
    assert [line.split()[0] for line in lines[1:]] == ["SCORE", "SCORE", "EVAL"] * 4


def test_empty_texts_keep_their_place(make):
    assert make().score(["", "a", "b"], references=[["a"], [""], ["b"]]).scores == [0.0, 0.0, 1.0]


def test_the_program_ends_with_the_metric(make):
    metric = make()
    metric.score(["a"], references=[["a"]])
    program = metric._program
    assert program.poll() is None
    del metric
    for _ in range(100):
        if program.poll() is not None:
            break
        time.sleep(0.05)
    assert program.poll() is not None and program.stdin.closed


@pytest.mark.parametrize(
    ("score", "message"),
    [
        (
            "sys.exit('Error: no memory')",
            r"meteor15: .*java -Xmx2G -jar .*meteor-1.5.jar ended with status 1: Error: no",
        ),
        ("sys.exit(3)", r"ended with status 3: no message"),
        ("print('nan? 1', flush=True); print('oh', 'oh', sep='\\n', flush=True)", r"answers 'oh', not a number"),
    ],
)
def test_a_program_that_fails_is_one_line_each_time(make, score, message):
    metric = make(score)
    for _ in range(1 if "answers" in message else 2):
        with pytest.raises(MetricInputError, match=message) as caught:
            metric.score(["a"], references=[["a"]])
        assert "\n" not in str(caught.value)


def test_what_is_missing_is_one_line(make, tmp_path, monkeypatch):
    make()
    jar = tmp_path / "meteor-1.5.jar"
    monkeypatch.setattr(meteor15, "find_spec", lambda name: None)
    missing = [
        (
            {"jar": tmp_path / "no.jar"},
            r"no\.jar is no file; .* the option jar \(reward\.jar=FILE, .*with data/",
        ),
        ({"jar": 3}, "jar 3 is no path of a file"),
        ({"jar": jar, "java": 8}, "there is no program 8; install Java"),
        ({"jar": jar, "java": "no-java"}, "there is no program 'no-java'; install Java 8 or later"),
        ({}, r"meteor15: no jar; give the path .* as the option jar .*pip install --no-deps pycocoevalcap"),
        ({"jar": jar, "tokenize": "x"}, "x"),
    ]
    for options, message in missing:
        with pytest.raises(MetricInputError, match=message) as caught:
            load("meteor15", **options)
        assert "\n" not in str(caught.value)
    (tmp_path / "data" / "paraphrase-en.gz").unlink()
    with pytest.raises(MetricInputError, match=r"data/paraphrase-en\.gz is no file"):
        load("meteor15", jar=jar)


def test_the_jar_of_the_installed_package(make, tmp_path, monkeypatch):
    metric = make()
    home = tmp_path / "site" / "pycocoevalcap"
    home.mkdir(parents=True)
    (home / "__init__.py").write_text("raise ImportError")  # found without being imported
    (home / "meteor").symlink_to(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    found = load("meteor15", java=metric._command[0])
    assert found.jar == home / "meteor" / "meteor-1.5.jar"
    assert found.score(["a b"], references=[["a"]]).scores == [0.5]


REAL = os.environ.get("METEOR_JAR")


@pytest.mark.skipif(not REAL, reason="METEOR_JAR names no meteor-1.5.jar")
def test_the_real_program():
    """Segment scores that `java -Xmx2G -jar meteor-1.5.jar hypotheses references -l en -norm` prints for two files."""
    questions = ["when was the mill built", "who built it", "which physician bought the automobile"]
    references = [["in what year was the mill built"], ["who built the mill"], ["what doctor bought a car"]]
    got = load("meteor15", jar=REAL).score(questions, references=references).scores
    assert got == pytest.approx([0.4076897420911257, 0.2530700196144771, 0.3069445782062099], abs=1e-12)
