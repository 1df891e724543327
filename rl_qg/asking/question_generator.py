"""Questions for people who do not train: a trained generator, and texts in, question-answer pairs out.

from rl_qg import QuestionGenerator
generator = QuestionGenerator.from_pretrained("RUN/scst")
generator.ask(text, number=5)
"""

import math
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from reprlib import repr as short
from typing import Any, Unpack, overload

import torch

from rewards import Usability
from rewards.errors import MetricInputError
from rewards.relevance.explanation import Explanation
from rl_qg.asking.documents import TextPassage, with_separators
from rl_qg.asking.drafts import AnswerProposals, Draft, QuestionRows
from rl_qg.asking.models import (
    check_text,
    chosen_reader,
    corpus_warning,
    generator_path,
    least_score,
    reader_path,
    ways_of,
)
from rl_qg.asking.pairs import AnswerSpan, AskOptions, AskRequest, QAPair, QAPairs
from rl_qg.asking.selection import WeighedSpan, matched_spans
from rl_qg.data.formats import is_unicode
from rl_qg.generation.endpoint import EndpointGenerator
from rl_qg.generation.generator import CandidateGenerator
from rl_qg.readers.reader import AnswerReader
from rl_qg.runtime.errors import InputError
from rl_qg.runtime.processes import side_by_side
from rl_qg.scoring.metrics import reranker_of
from rl_qg.scoring.reward_scorer import Reward
from rl_qg.text.languages import known_code

Answers = Sequence[str | AnswerSpan]


class QuestionGenerator:
    """Asks questions about texts. `from_pretrained` makes one. Not for use by several threads at a time.

    What is returned for a text does not depend on the other texts of a call: on a CPU it is the same to the last
    digit.

    `name` is the model, as the user gave it; `ways` are those in which the model makes pairs, the usual one first: of
    "pipeline", "multitask", "end2end"; `warning` is what to know of a model that was trained on the embedded corpus,
    as one sentence, "" for another.
    """

    def __init__(
        self,
        generator: CandidateGenerator,
        *,
        name: str = "",
        reader: AnswerReader | None = None,
        usability: Usability | None = None,
        proposals: AnswerProposals | None = None,
        reward: Reward | None = None,
        batch_size: int = 16,
        cores: int = 1,
    ) -> None:
        self._generator, self.name, self._reader, self._usability = generator, name, reader, usability
        self.warning = corpus_warning(name)
        self.ways = ways_of(generator.encoder.prompt, name)
        self._rows, self._cores = QuestionRows(generator, batch_size, cores), cores
        self._proposals = proposals or AnswerProposals(generator)
        self._reward, self._reranker = reward, None if reward is None else reranker_of(reward)
        if self._reranker and self._reranker.needs_references:
            raise InputError(
                f"reward {self._reranker.signature}: compares with human questions, and there are none; choose a "
                "reward without references, such as qascore"
            )

    @classmethod
    def from_pretrained(
        cls,
        path: str | Path | EndpointGenerator,
        *,
        device: str | torch.device | None = None,
        reader: str | Path | None = None,
        extractor: str | Path | None = None,
        reward: Reward | None = None,
        batch_size: int = 16,
        cores: int = 1,
        format: str | None = None,
    ) -> "QuestionGenerator":
        """Load a run (its `scst/`, else its `ce/`), a folder, a model of the Hub, or a packaged miniature such as
        `miniature:bart`: any encoder-decoder or causal model that this package trains.

        Args:
            path: of the model; or a model behind an address.
            device: None: the GPU if there is one.
            reader: folder or Hub name of an extractive reader that checks the answers; None: the one that comes with
                a packaged generator, else none; "none": none.
            extractor: folder of `rl-qg train-answers`, which proposes answers in the way `pipeline`; None: rules.
            reward: a metric that needs no human questions, such as `rewards.load("qascore")`. It chooses among the
                questions of an answer and orders the pairs, and its value is in `scores` under its name. Pairs on
                which it fails come last, and are counted in `dropped`. `score` stays as it is.
            batch_size: answers that are decoded together.
            cores: of a CPU, on which batches are decoded, and texts read back, side by side; call
                `torch.set_num_threads(1)` before, without which it has no effect.
            format: of the model's inputs and texts, one of `rl-qg models`; None: recognised.
        """
        place = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
        if wrong := [f"{name}={value}" for name, value in (("batch_size", batch_size), ("cores", cores)) if value < 1]:
            raise InputError(f"{wrong[0]} must be at least 1")
        own: Any = {"device": place, "independent": place.type == "cpu", "format": format}
        asked = path if isinstance(path, EndpointGenerator) else None
        name = asked.name if asked else str(path)
        generator = asked or CandidateGenerator(generator_path(name), **own)
        checking = chosen_reader(reader, name)
        answers = AnswerReader(reader_path(checking), device=place) if checking else None
        heads = answers.model.config.architectures if answers else ()
        judges = any("SequenceClassification" in head for head in heads)  # it has learned what is usable, too
        # One pair at a time: a probability does not depend on the other pairs, to the last digit.
        usability = Usability(reader_path(checking), batch_size=1, device=place) if judges else None
        parts: Any = {"proposals": AnswerProposals(generator, extractor=extractor, device=place), "reward": reward}
        parts |= {"usability": usability, "batch_size": batch_size, "cores": cores if place.type == "cpu" else 1}
        return cls(generator, name=name, reader=answers, **parts)

    @property
    def explains(self) -> str | None:
        """The name of the reward, where it has an explanation of its own (`explain`)."""
        return self._reranker.name if self._reranker and hasattr(self._reward, "explain") else None

    def rank(self, pair: QAPair) -> float:
        """What orders pairs, higher is better: the reward (-inf where it failed), else the score."""
        if self._reranker is None:
            return pair.score
        value = pair.scores.get(self._reranker.name)
        return -math.inf if value is None else self._reranker.sign * value

    @property
    def reward_signature(self) -> str | None:
        """Of the reward that orders the pairs; None where their score does."""
        return None if self._reranker is None else self._reranker.signature

    @overload
    def ask(  # type: ignore[overload-overlap]  # a text is a sequence of texts for the type checker
        self, texts: str, answers: Answers | None = None, **options: Unpack[AskOptions]
    ) -> QAPairs: ...
    @overload
    def ask(
        self, texts: Sequence[str], answers: Sequence[Answers | None] | None = None, **options: Unpack[AskOptions]
    ) -> list[QAPairs]: ...
    def ask(
        self, texts: str | Sequence[str], answers: Any = None, **options: Unpack[AskOptions]
    ) -> QAPairs | list[QAPairs]:
        """Question-answer pairs of a text, or of each text of a list.

        Args:
            texts: one text, or several, of any length.
            answers: what to ask about, for several texts one list (or None) each; by default answers are proposed. An
                `AnswerSpan` is asked about where it stands, a text at its first place. There is one pair for each, in
                their order; an answer given twice gets two different questions.
            options: the `number` of pairs for each text, best first (5; None: all that are good enough; without effect
                where there are `answers`), `language`, `seed`, `way` and `min_score`, as in `AskRequest`.

        The pairs of each text come with the `reason` where there are fewer than asked for. A text that gives none (it
        is empty, or holds no answer) is an empty list with its reason, and costs the others nothing.

        Raises:
            InputError: a value is of the wrong type or out of its range, the model cannot do this (see `check`), or
                a text is not in the language of a packaged model.
        """
        several = _listed(texts)
        given = [answers] if isinstance(texts, str) else [None] * len(several) if answers is None else answers
        if not _is_list(given):
            raise InputError(f"answers={short(given)} is no list; give a list of answers, or None, for each text")
        if len(given) != len(several):
            raise InputError(f"answers has {len(given)} lists for {len(several)} texts; give one for each, or None")
        for text in several:
            check_text(self.name, text, "the text")
        asked = zip(several, given, strict=True)
        found = self.ask_many([AskRequest(text, chosen, **options) for text, chosen in asked])
        return found[0] if isinstance(texts, str) else found

    def ask_many(self, requests: Sequence[AskRequest]) -> list[QAPairs]:
        """The pairs of each request; all of them are decoded together. `InputError` as of `check`."""
        for request in requests:
            self.check(request)
        drafts = [self._draft(number, request) for number, request in enumerate(requests)]
        self.complete(drafts)
        return [draft.selected() for draft in drafts]

    def proposed(self, request: AskRequest) -> Draft:
        """A text with what is asked about in it (without a `number`, later). `InputError` as of `check`."""
        self.check(request)
        draft = self._draft(0, request)
        if request.number is not None:
            draft.propose(self._proposals)
        return draft

    def complete(self, drafts: Sequence[Draft]) -> None:
        """Find what is asked about where unknown, decode all drafts' questions together, read back, rank."""
        for draft in drafts:
            draft.propose(self._proposals)
        candidates = iter(self._rows.candidates([row for draft in drafts for row in draft.rows]))
        for draft in drafts:
            draft.add(candidates)
            draft.add_whole_pairs(self._generator)
        side_by_side(self._read, drafts, self._cores)
        for draft in drafts:
            draft.rank(self._reranker)

    def _read(self, draft: Draft) -> None:
        draft.read_back(self._reader)
        draft.judge(self._usability)

    def _draft(self, number: int, request: AskRequest) -> Draft:
        way, least = request.way or self.ways[0], least_score(request, self.name)
        return Draft(number, request, self.passages(request.text), way, least)

    def check(self, request: AskRequest) -> None:
        """Raise `InputError` if the model cannot do what a request asks for: it has no such way, does not know the
        language, or writes all pairs at once and is given answers.
        """
        if request.way is not None and request.way not in self.ways:
            raise InputError(f"way={request.way}: {self.name or 'this model'} can do {' or '.join(self.ways)}")
        if request.answers is not None and self.ways == ("end2end",):
            raise InputError(
                f"answers: {self.name or 'this model'} writes questions and answers at once, and none about a given "
                "answer; give a model that was trained with model.task=questions or multitask"
            )
        if languages := self._generator.encoder.languages:
            languages.code(request.language)  # refuses one that the model does not know
        else:
            known_code(request.language)

    def passages(self, text: str) -> list[TextPassage]:
        """The parts in which a text is read (`with_separators`): all of it if the model can read it, else cut at ends
        of paragraphs or sentences. None for a blank text, or one that is not valid Unicode.
        """
        return self._rows.passages(with_separators(text))

    @overload
    def answers(  # type: ignore[overload-overlap]
        self, texts: str, *, number: int | None = 10, language: str = "en"
    ) -> list[AnswerSpan]: ...
    @overload
    def answers(
        self, texts: Sequence[str], *, number: int | None = 10, language: str = "en"
    ) -> list[list[AnswerSpan]]: ...
    def answers(
        self, texts: str | Sequence[str], *, number: int | None = 10, language: str = "en"
    ) -> list[AnswerSpan] | list[list[AnswerSpan]]:
        """What can be asked about in a text, or in each text of a list, at most `number` of each (None: all): the best
        of each sentence first. An empty list where nothing is found.
        """
        several = _listed(texts)
        found = []
        for text in several:
            self.check(AskRequest(text, number=number, language=language))
            found.append(self._proposals(text, self.passages(text), self.ways[0], number, or_rules=True))
        return found[0] if isinstance(texts, str) else found

    def score(
        self, questions: Sequence[str], contexts: Sequence[str], answers: Answers, *, language: str = "en"
    ) -> list[dict[str, float]]:
        """How good questions are for their answers (texts or spans) in contexts of any length: for each `score`,
        `logprob`, `probability` and, with a reader, `round_trip` (of the packaged one `usability` too), as `ask`
        computes them; with a reward its value.

        Nothing is known ({}) of a question that is empty or no valid Unicode, or whose answer is not in its context or
        does not fit into the model's input. `InputError` where the three are not lists of equally many, or as of
        `check`.
        """
        for name, given in (("questions", questions), ("contexts", contexts), ("answers", answers)):
            if not _is_list(given):
                raise InputError(f"{name}={short(given)} is no list; give one of each for every question")
        if wrong := [question for question in questions if not isinstance(question, str)]:
            raise InputError(f"questions: {short(wrong[0])} is not a text")
        if not len(questions) == len(contexts) == len(answers):
            counts = f"{len(questions)} questions, {len(contexts)} contexts and {len(answers)} answers"
            raise InputError(f"{counts}; give as many of each")
        drafts = []
        for number, (question, context, answer) in enumerate(zip(questions, contexts, answers, strict=True)):
            request = AskRequest(context, (answer,), language=language)
            self.check(request)
            draft = Draft(number, request, self.passages(context), self.ways[0])
            draft.propose(self._proposals)
            drafts.append((draft, question if is_unicode(question) else ""))
        rows = [
            replace(row, example=replace(row.example, question=text))
            for draft, text in drafts
            for row in draft.rows
            if text.strip()
        ]
        known = iter(self._rows.likelihoods(rows))
        scores = []
        for draft, text in drafts:
            found = [next(known) if text.strip() else None for _ in draft.rows]
            draft.add(iter([[one] if one else [] for one in found]), given=True)
            self._read(draft)
            draft.rank(self._reranker)
            scores.append(next(({"score": p.score, "logprob": p.logprob, **p.scores} for p in draft.pairs), {}))
        return scores

    def explain(self, question: str, context: str, answer: AnswerSpan) -> list[WeighedSpan] | None:
        """What in a context counts for a question by the reward, in the passage that has the answer.

        None where the reward has no explanation of its own, the answer is not there, or there is nothing to compare.
        """
        passages = self.passages(context)
        if self.explains is None or not passages or not context.startswith(answer.text, answer.start):
            return None
        passage = Draft(0, AskRequest(context, (answer,)), passages, self.ways[0]).passage_of(answer)
        reward: Any = self._reward
        try:
            explanation = reward.explain(question, passage.text)
        except MetricInputError:
            return None
        return matched_spans(explanation, passage.start) if isinstance(explanation, Explanation) else None


def _is_list(value: Any) -> bool:
    return isinstance(value, Collection) and not isinstance(value, (str, bytes))


def _listed(texts: Any) -> list[str]:
    if isinstance(texts, str):
        return [texts]
    if isinstance(texts, bytes) or not isinstance(texts, Iterable):
        raise InputError(f"texts={short(texts)} is neither a text nor a list of texts")
    return list(texts)
