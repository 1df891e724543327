"""Run folders for the tests of the report, and the report as a browser would read it."""

import json
from html.parser import HTMLParser

from rl_qg.reports.report import write_report

NASTY = "Who wrote <script>alert('x')</script> & \"Hamlet\"?"
VOID = {"meta", "link", "br", "img", "hr", "input"}


class Page(HTMLParser):
    """What a browser would see: ids, addresses, tags, visible text, and tags that were never closed; `downloads` are
    the files that the page holds.
    """

    def __init__(self, text):
        super().__init__(convert_charrefs=True)
        self.source, self.ids, self.addresses, self.tags, self.words, self.open = text, [], [], [], [], []
        self.downloads = []
        self.feed(text)
        self.text = " ".join(" ".join(self.words).split())

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.open += [] if tag in VOID else [tag]
        self._note(attrs)

    def handle_startendtag(self, tag, attrs):
        self.tags.append(tag)
        self._note(attrs)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if not self.open or self.open[-1] != "style":
            self.words.append(data)

    def _note(self, attrs):
        for name, value in attrs:
            if name == "id":
                self.ids.append(value)
            if name in ("src", "href", "xlink:href", "action", "data", "srcset"):
                (self.downloads if any(key == "download" for key, _ in attrs) else self.addresses).append(value)


def interval(mean, half, n=50):
    return {"mean": mean, "low": mean - half, "high": mean + half, "n": n}


def evaluation():
    sample = {
        "id": "q1",
        "context": "Before it. " * 40 + "The play was written by Shakespeare in London." + " After it." * 40,
        "answer": "Shakespeare",
        "answer_start": 464,
        "gold": "Who wrote the play?",
        "ce": NASTY,
        "scst": "Who was it that wrote the play in London?",
        "reward_gold": 0.31,
        "reward_ce": 0.2213,
        "reward_scst": 0.4567,
    }
    return {
        "examples": 50,
        "passages": 20,
        "reward_signature": "qrelscore|variant:official|version:0.1.0",
        "models": {
            "ce": {
                "bleu4": interval(0.1743, 0.015),
                "bleu_signature": "bleu|order:4|set:corpus",
                "reward": interval(0.31, 0.02),
            },
            "scst": {"bleu4": 0.18, "reward": interval(0.36, 0.02), "length_words": 11.25, "distinct_questions": 0.96},
            "gold": {"reward": interval(0.33, 0.02)},
        },
        "difference": {"of": "scst - ce", "reward": interval(0.05, 0.01)},
        "samples": [sample],
    }


def metrics(ce=30, scst=30):
    lines = []
    for step in range(1, ce + scst + 1):
        line = {"step": step, "epoch": step / 30, "stage": "ce" if step <= ce else "scst", "loss": 3 / step}
        line |= {"loss_ce": 3 / step, "lambda": 0.0, "grad_norm": 1.0, "learning_rate": 1e-4, "seconds_update": 0.5}
        if step > ce:
            line |= {"lambda": (step - ce) / scst, "loss_scst": -0.1, "reward_sample": 0.2, "reward_greedy": 0.3}
            line |= {"advantage": -0.1, "length_gold": 9.0, "length_sample": 10.0, "length_greedy": 8.0}
            line |= {"seconds_rollout": 0.25, "seconds_reward": 0.125}
        lines.append(line)
        if step % 10 == 0:
            head = {key: line[key] for key in ("step", "epoch", "stage")}
            lines.append({**head, "eval_loss": 1.0, "eval_reward_greedy": 0.25})
    return lines


def reader(em, f1, total=80):
    return {
        "exact_match": em,
        "f1": f1,
        "total": total,
        "seeds": [{"seed": k, "exact_match": em + k - 1, "f1": f1 + k - 1} for k in range(3)],
        "intervals": {"exact_match": [em - 4, em + 4], "f1": [f1 - 3, f1 + 3]},
    }


GAIN = {"exact_match": interval(3.5, 4.0), "f1": interval(3.4, 1.6)}
FILES = {
    "run.json": {
        "command": ["rl-qg", "pipeline", "output_dir=runs/my run"],
        "started": "2026-01-02T03:04:05+00:00",
        "code": {"commit": "0123456789abcdef", "dirty": True},
        "seed": 13,
        "versions": {"torch": "2.13.0"},
        "hardware": {"accelerators": []},
        "data": {"train.json": "ab" * 32},
        "leakage": {
            "train_passages": 61,
            "validation_passages": 20,
            "shared_passages": 0,
            "train_examples_dropped": 0,
        },
        "data_report": {"train": {"read": 1300, "kept": 1288, "dropped": {"no answer": {"count": 12, "ids": ["a"]}}}},
    },
    "evaluation.json": evaluation(),
    "augmented.report.json": {
        "gold": 1200,
        "candidates": 9600,
        "dropped": {"no question mark": 2400, "question repeats human data": 1200},
        "kept": 6000,
        "sampled": 4000,
        "requested": 4000,
    },
    "qa/gold/qa_metrics.json": reader(51.5, 61.8),
    "qa/scst/qa_metrics.json": reader(55.0, 65.2),
    "qa/comparison.json": {"difference": GAIN, "differences": {"scst - gold": GAIN}},
}


def write(folder, **changes):
    """A run folder; `changes` maps a file name to other content, or to None to leave the file out."""
    texts = {name: json.dumps(value) for name, value in FILES.items()}
    texts["metrics.jsonl"] = "".join(json.dumps(line) + "\n" for line in metrics())
    texts["config.yaml"] = "seed: 13\nmodel:\n  path: miniature:bart\n"
    texts["questions.jsonl"] = '{"id": "q1"}\n' * 9600
    texts |= {name: json.dumps(value) if isinstance(value, dict) else value for name, value in changes.items()}
    for name, text in texts.items():
        if text is not None:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(text, encoding="utf-8")
    return folder


def page_of(*folders, output):
    write_report(folders, output)
    return Page(output.read_text(encoding="utf-8"))


# --- What a run of the present pipeline has besides: three readers, the oracle, the separation of the reward ---


def reader_at(em, f1, updates, examples):
    return {
        **reader(em, f1),
        "updates": updates,
        "resampled": "passages",
        "features": {"train": {"examples": examples}},
    }


def shares(right, wrong_entity, half=0.04):
    rest = 1 - right - wrong_entity
    values = {"right": right, "ill_formed": 0, "ambiguous": 0, "wrong_relation": rest, "other_subject": 0}
    values |= {"invented_name": wrong_entity * 3 / 4, "wrong_detail": wrong_entity / 4}
    values |= {"wrong_attribute": rest, "wrong_entity": wrong_entity, "unsupported": wrong_entity / 2, "no_subject": 0}
    return {name: interval(value, half if value else 0) for name, value in values.items()}


def judged_sample(ce, scst, verdict_ce, verdict_scst):
    """The questions of both generators for one answer, with what the oracle says of them."""
    texts = {"context": "Ada lives in Rome.", "answer": "Rome", "answer_start": 13, "gold": "Where does Ada live?"}
    oracle = {"gold": "right", "ce": verdict_ce, "scst": verdict_scst}
    return {**texts, "id": "a", "ce": ce, "scst": scst, "oracle": oracle}


JUDGED = [
    judged_sample("Where does Ada live?", "Ada?", "right", "ill_formed"),
    judged_sample("Where does Max live?", "Where does Ada live?", "invented_name", "right"),
    judged_sample("Who lives in Rome?", "Who is in Rome?", "wrong_relation", "wrong_relation"),
]


def three_readers():
    """Changes for `write`: files of a run that compared three readers at equal updates."""
    result = evaluation()
    for model, part in {"ce": shares(0.7, 0.2), "scst": shares(0.8, 0.15), "gold": shares(1.0, 0.0)}.items():
        result["models"][model]["oracle"] = part
        result["models"][model]["reward_parts"] = {"form": interval(0.9, 0.02), "reader": interval(0.4, 0.02)}
    result["difference"]["oracle"] = {
        name: interval(value, 0.04)
        for name, value in (("right", 0.1), ("invented_name", -0.05), ("wrong_entity", -0.05), ("unsupported", -0.06))
    }
    result["samples"] = JUDGED
    pairs = {"ce - gold": (3.0, 1.5), "scst - gold": (5.0, 1.5), "scst - ce": (2.0, 2.5)}
    differences = {
        pair: {"exact_match": interval(mean - 1, half, 80), "f1": interval(mean, half, 80)}
        for pair, (mean, half) in pairs.items()
    }
    kinds = {"another passage": (0.97, 0.01), "wrong_entity": (0.52, 0.04)}
    return {
        "evaluation.json": result,
        "qa/gold/qa_metrics.json": reader_at(51.5, 61.8, 657, 1200),
        "qa/ce/qa_metrics.json": reader_at(53.9, 64.8, 657, 3200),
        "qa/scst/qa_metrics.json": reader_at(55.5, 66.8, 657, 3200),
        "qa/comparison.json": {"difference": differences["scst - gold"], "differences": differences},
        "augmented.ce.report.json": {"kept": 5900, "sampled": 4000},
        "separation.json": {
            "reward": "reader|measure:probability",
            "pairs": {kind: auc(*share) for kind, share in kinds.items()},
            "auc": auc(0.75, 0.02),
        },
        "config.yaml": "algorithm: scst\nstages: both\n",
        "trained.json": {"model": "scst", "unlabelled": {"examples": 3600, "share": 0.75}},
        "run.json": {**FILES["run.json"], "examples": {"gold": 1200, "unlabelled": 3600, "validation": 80}},
    }


def auc(share, half, n=160):
    return {"auc": share, "low": share - half, "high": share + half, "n": n}
