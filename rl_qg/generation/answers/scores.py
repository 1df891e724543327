"""How proposed answers compare with those that people chose."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rewards.words import normalise_answer
from rl_qg.data.examples import QAExample
from rl_qg.readers.squad_scores import f1

CLOSE = 0.5  # token F1 from which on an answer counts as nearly proposed


def score_proposals(proposed: Mapping[str, Sequence[str]], examples: Iterable[QAExample]) -> dict[str, Any]:
    """Compare the texts proposed for each passage (by context) with the answers of its questions, as fractions.

    `recall`, `close_recall`: questions of which an answer is proposed exactly (after SQuAD's normalisation), or with
    token F1 of at least 0.5. `distinct_recall`: the same as `recall` over the distinct answers of a passage, the first
    of each question. `precision`: proposals that are an answer of some question of their passage; people chose few of
    the possible answers, so this is a lower bound. `f1` is that of `precision` and `distinct_recall`. Texts, not
    places, are compared. Passages that `proposed` lacks count as without a proposal.
    """
    passages: dict[str, list[QAExample]] = {}
    for example in examples:
        passages.setdefault(example.context, []).append(example)
    asked = found = close = distinct = distinct_found = spans = right = 0
    for context, questions in passages.items():
        texts = {normalise_answer(text): text for text in proposed.get(context, ())}
        answers = {normalise_answer(answer.text) for example in questions for answer in example.answers}
        firsts = {normalise_answer(example.answers[0].text) for example in questions}
        for example in questions:
            asked += 1
            found += any(normalise_answer(answer.text) in texts for answer in example.answers)
            close += any(f1(text, answer.text) >= CLOSE for answer in example.answers for text in texts.values())
        distinct += len(firsts)
        distinct_found += len(firsts & texts.keys())
        spans += len(texts)
        right += len(answers & texts.keys())
    precision, distinct_recall = right / max(1, spans), distinct_found / max(1, distinct)
    return {
        "passages": len(passages),
        "questions": asked,
        "spans_per_passage": spans / max(1, len(passages)),
        "precision": precision,
        "recall": found / max(1, asked),
        "close_recall": close / max(1, asked),
        "distinct_recall": distinct_recall,
        "f1": 2 * precision * distinct_recall / max(1e-12, precision + distinct_recall),
    }
