"""The passages of this experiment and of `experiments/sets`: the embedded corpus, and windows of SQuAD."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from rl_qg.data.corpus import synthetic_examples
from rl_qg.data.examples import Answer, QAExample, write_squad
from rl_qg.data.reading import read_examples
from rl_qg.text.spans import sentence_texts


def write_world(folder: Path, scale: float) -> None:
    """300 passages to learn from, 200 held out, 300 to make pairs of for the readers, and 20 to watch the loss on."""
    sizes = {"train": 300, "held-out": 200, "more": 300, "dev": 20}
    for seed, (name, passages) in enumerate(sizes.items(), 11):
        write_squad(
            folder / f"{name}.json", synthetic_examples(max(4, round(passages * scale)), seed=seed, prefix=name)
        )


def write_squad_windows(folder: Path, shared: Path, scale: float) -> None:
    """The same of windows of SQuAD: articles of du_test to learn from, of dev_part1 to be judged on."""
    training = list(windows(read_examples(shared / "data/squad/du_test-v1.1.json.gz", role="train").examples))
    held_out = list(windows(read_examples(shared / "data/squad/dev_part1-v1.1.json.gz", role="validation").examples))
    half = len(training) // 2  # the file has article after article: at most one is in both
    parts = {"train": training[:half], "more": training[half:], "held-out": held_out[40:], "dev": held_out[:40]}
    sizes = {"train": 800, "more": 400, "held-out": 200, "dev": 20}
    for name, groups in parts.items():
        step = max(1, int(len(groups) / (sizes[name] * scale)))  # spread over the articles
        chosen = groups[::step][: max(4, round(sizes[name] * scale))]
        write_squad(folder / f"{name}.json", [example for group in chosen for example in group])


def windows(examples: list[QAExample]) -> Iterator[list[QAExample]]:
    """The questions of windows of neighbouring sentences, 30 to 60 words, with at least two questions whose answers
    are within; the rest of a passage is left out.
    """
    passages: dict[str, list[QAExample]] = {}
    for example in examples:
        passages.setdefault(example.context, []).append(example)
    for context, asked in passages.items():
        start = 0
        for part in _parts(context):
            start = context.index(part, start)
            inside = [
                one for one in asked if start <= one.answers[0].start <= start + len(part) - len(one.answers[0].text)
            ]
            moved = [
                replace(one, context=part, answers=(Answer(one.answers[0].text, one.answers[0].start - start),))
                for one in inside
            ]
            if len({one.question for one in moved}) > 1:
                yield moved


def _parts(context: str) -> Iterator[str]:
    """Neighbouring sentences joined as they stand, until there are 30 words; those of more than 60 are left out."""
    start = end = 0
    for sentence in sentence_texts(context):
        place = context.index(sentence, end)
        start, end = (place if start == end else start), place + len(sentence)
        if len(context[start:end].split()) >= 30:
            if len(context[start:end].split()) <= 60:
                yield context[start:end]
            start = end
