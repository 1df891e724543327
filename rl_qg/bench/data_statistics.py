"""Statistics of a split: how many questions, paragraphs and articles, and how long the texts are."""

from collections.abc import Mapping, Sequence
from typing import Any

from rl_qg.data.answer_sentence import sentence_of
from rl_qg.data.examples import QAExample, passage_hash
from rl_qg.text.tables import as_markdown

TEXTS = ("paragraph", "sentence", "question", "answer")


def split_statistics(examples: Sequence[QAExample]) -> dict[str, Any]:
    """Counts, and the mean lengths in characters over questions, as in QG-Bench (Table 1).

    `first_occurrence_wrong` counts the questions whose first answer stands at another place than where its text first
    occurs in the paragraph.
    """
    totals = dict.fromkeys(TEXTS, 0)
    wrong = 0
    for example in examples:
        answer = example.answers[0]
        first, last = sentence_of(example.context, answer.start, answer.start + len(answer.text))
        lengths = (len(example.context), last - first, len(example.question), len(answer.text))
        for name, length in zip(TEXTS, lengths, strict=True):
            totals[name] += length
        wrong += example.context.find(answer.text) != answer.start
    questions = len(examples)
    return {
        "questions": questions,
        "paragraphs": len({passage_hash(example.context) for example in examples}),
        "articles": len({example.title for example in examples if example.title}),
        "mean_characters": {name: total / questions for name, total in totals.items()},
        "first_occurrence_wrong": wrong,
    }


def statistics_table(splits: Mapping[str, Mapping[str, Any]]) -> str:
    """The statistics of all splits as a Markdown table."""
    columns = ["split", "questions", "paragraphs", "articles", *(f"{name} (mean characters)" for name in TEXTS)]
    rows = [
        [
            *(name, f"{part['questions']:,}", f"{part['paragraphs']:,}", f"{part['articles']:,}"),
            *(f"{part['mean_characters'][text]:.1f}" for text in TEXTS),
            f"{part['first_occurrence_wrong'] / part['questions']:.1%}",
        ]
        for name, part in splits.items()
    ]
    return as_markdown([*columns, "answer's text also before it"], rows)
