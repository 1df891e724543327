"""Questions for answers, decoded in batches of similar length: one row is an answer in its passage.

What is decoded for a row must not depend on the other rows of a call. A matrix product rounds a row differently with
other rows beside it and with other padding (measured: with PyTorch's own linear layers nearly every log-probability
differs in its last digits). Where the generator computes each row alike (`CandidateGenerator.is_independent`), rows of
all texts share batches in which all inputs are padded to the same length, which depends on their own length alone.
Otherwise (causal models, several threads, a GPU) a text has batches of its own, which are the same whatever else is
asked for.
"""

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby

from rl_qg.asking.passages import TextPassage, cut_text
from rl_qg.data.examples import Answer, QAExample
from rl_qg.data.formats import is_unicode
from rl_qg.generation.generator import LENGTH_STEP, Candidate, CandidateGenerator
from rl_qg.generation.prompts import HIGHLIGHT
from rl_qg.generation.tasks import PREFIXES
from rl_qg.runtime.out_of_memory import OutOfMemoryRetry

BEAMS = 4  # questions that are decoded for an answer
TOP_P = 0.9  # of samples, as in `rl-qg generate`
MARGIN = 10  # tokens that are left free: for special tokens, and because a text may have more than its parts


@dataclass(frozen=True)
class QuestionRow:
    """An answer at character `start` of its passage; `text` numbers the texts of a call."""

    text: int
    passage: str
    answer: str
    start: int
    language: str = "en"
    seed: int | None = None
    question: str = ""

    @property
    def example(self) -> QAExample:
        """As the generator reads it. Samples depend on its id, so on what is asked about alone."""
        digest = hashlib.sha256(self.passage.encode()).hexdigest()[:16]
        key = f"{self.seed}|{digest}|{self.start}|{len(self.answer)}"
        answers = (Answer(self.answer, self.start),)
        return QAExample(key, "", self.passage, self.question, answers, language=self.language)


class QuestionRows:
    """Decodes the questions of rows.

    Args:
        generator: decodes them.
        batch_size: rows that are decoded together, at most.
    """

    def __init__(self, generator: CandidateGenerator, batch_size: int) -> None:
        self.generator, self.batch_size = generator, batch_size
        self._retry = OutOfMemoryRetry("questions", "use a smaller model, or a machine with more memory")

    def candidates(self, rows: Sequence[QuestionRow]) -> list[list[Candidate]]:
        """The questions of each row, the most probable first: all beams of a search, or samples where the row has a
        seed. Empty where the answer does not fit into the model's input.
        """
        found: list[list[Candidate]] = [[] for _ in rows]
        for batch in self._batches(rows):
            sampled = rows[batch[0]].seed is not None
            decode = partial(
                self.generator.candidates,
                count=BEAMS,
                max_new_tokens=self.generator.encoder.prompt.max_target_length,
                top_p=TOP_P if sampled else None,
                temperature=1.0,
            )
            parts = self._retry(decode, [rows[number].example for number in batch])
            for number, group in zip(batch, (group for part in parts for group in part), strict=True):
                found[number] = group
        return found

    def likelihoods(self, rows: Sequence[QuestionRow]) -> list[Candidate | None]:
        """The question of each row as if it had been decoded; None where the answer does not fit."""
        found: list[Candidate | None] = [None for _ in rows]
        for batch in self._batches(rows):
            parts = self._retry(self.generator.likelihoods, [rows[number].example for number in batch])
            for number, candidate in zip(batch, (one for part in parts for one in part), strict=True):
                found[number] = candidate
        return found

    def _batches(self, rows: Sequence[QuestionRow]) -> Iterator[list[int]]:
        """The numbers of the rows in batches of similar length; rows whose answer does not fit are left out."""
        together = self.generator.is_independent
        keys: list[tuple[bool, int, int, int]] = []
        for number, row in enumerate(rows):
            encoded = self.generator.encoder.encode([row.example])[0]
            if not encoded.answer_cut:
                length = len(encoded.ids)
                apart = -(-length // LENGTH_STEP) if together else row.text
                keys.append((row.seed is None, apart, length, number))
        for _, group in groupby(sorted(keys), key=lambda key: key[:2]):
            numbers = [key[-1] for key in group]
            for first in range(0, len(numbers), self.batch_size):
                yield numbers[first : first + self.batch_size]

    # --- Passages ---

    def passages(self, text: str) -> list[TextPassage]:
        """The parts in which a text is read, none where it is blank or no valid Unicode."""
        if not text.strip() or not is_unicode(text):
            return []
        return cut_text(text, self._sizes, self._room)

    @property
    def _room(self) -> int:
        """Tokens that an input has for a passage."""
        prompt = self.generator.encoder.prompt
        prefixes = PREFIXES.values() if prompt.task == "multitask" else [prompt.prefix]
        frames = self._sizes([f"{prefix}{HIGHLIGHT}  {HIGHLIGHT}{prompt.separator}" for prefix in prefixes])
        return max(1, prompt.max_source_length - max(frames) - MARGIN)

    def _sizes(self, texts: Sequence[str]) -> list[int]:
        encoded = self.generator.tokenizer(list(texts), add_special_tokens=False, verbose=False)
        return [len(ids) for ids in encoded["input_ids"]]

    # --- Languages ---

    def check_language(self, language: str) -> None:
        """Raise `InputError` where the model has codes of languages, but none of this one."""
        if languages := self.generator.encoder.languages:
            languages.code(language)
