"""A toy task for classifiers of sentences: questions ask for animals and cities."""

import random
from dataclasses import replace
from pathlib import Path

from transformers import BertModel

from rl_qg.data.examples import Answer, QAExample
from rl_qg.settings import QAModelSettings, TrainSentencesSettings
from tests.tiny_models import save, tiny
from tests.toy_reader import FILLER, KINDS, toy_tokenizer

ASKED = {"animal": "who is it ?", "city": "where is it ?"}


def passages(count: int, seed: int, *, first_only: bool = False) -> list[QAExample]:
    """Passages of four sentences. Of each kind of `ASKED` some sentences have a phrase, and a question for it: its
    words say what is worth a question. With `first_only` every sentence has an animal, and the first alone is asked
    about: only its place says so.
    """
    rng, examples = random.Random(seed), []
    for number in range(count):
        text, found = "", []
        for place in range(4):
            kinds = ["animal"] if first_only else [kind for kind in ASKED if rng.random() < 0.4]
            pieces = rng.choices(FILLER, k=5 - len(kinds))  # the length says nothing
            for kind in kinds:
                pieces.insert(rng.randrange(len(pieces) + 1), rng.choice(KINDS[kind][:2]))
            for kind in kinds if place == 0 or not first_only else ():
                phrase = next(piece for piece in pieces if piece in KINDS[kind])
                before = " ".join(pieces[: pieces.index(phrase)])
                found.append((kind, Answer(phrase, len(text) + len(before) + bool(before))))
            text += f"{' '.join(pieces)}. "
        context = ". ".join(part[:1].upper() + part[1:] for part in text.strip().split(". "))  # ends, by the rule
        examples += [
            QAExample(f"{seed}-{number}-{at}", f"article {number % 12}", context, ASKED[kind], (answer,))
            for at, (kind, answer) in enumerate(found)
        ]
    return [replace(one, answers=(_as_in(one.context, one.answers[0]),)) for one in examples]


def _as_in(context: str, answer: Answer) -> Answer:
    return Answer(context[answer.start : answer.start + len(answer.text)], answer.start)


def save_encoder(folder: Path, spread: float = 0.1) -> Path:
    tokenizer = toy_tokenizer(lowercase=True)
    return Path(save(folder, tokenizer, tiny(BertModel, len(tokenizer), hidden=32, spread=spread)))


def toy_settings(encoder: Path, **changes) -> TrainSentencesSettings:
    chosen = TrainSentencesSettings(
        model=QAModelSettings(str(encoder)), learning_rate=5e-3, batch_size=16, max_length=32, epochs=4
    )
    return replace(chosen, **changes)
