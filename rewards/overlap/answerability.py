"""Answerability and the Q-metrics: which of a question's words match, weighted by the role of the words.

Source: Nema and Khapra, "Towards a Better Metric for Evaluating Question Generation Systems", EMNLP 2018, equations 1
to 4; code PrekshaNema25/Answerability-Metric. Ji, Lyu, Jones, Zhou, Graham, "QAScore", Entropy 2022, equation 3.
"""

import logging
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Literal, get_args

import numpy as np

from rewards.base import Inputs, Metric, MetricResult
from rewards.errors import MetricInputError, number, one_of
from rewards.overlap.base import Floats, OverlapMetric, best_of_groups, f_score, ngram_overlap
from rewards.overlap.bleu import Bleu, coco_bleu
from rewards.overlap.meteor import Meteor
from rewards.overlap.rouge import RougeL
from rewards.words import ENGLISH, Words, cached_by_text, libraries, ptb, tokenizer

# The four classes of words of an English question, as the released code sorts them (section 4).

CLASSES = ("content", "entity", "type", "function")
DATA_TYPES = ("squad", "wikimovies")

_LOWER_QUESTION_WORDS = tuple(ENGLISH["question_words"].split())
QUESTION_WORDS = frozenset([*_LOWER_QUESTION_WORDS, *map(str.capitalize, _LOWER_QUESTION_WORDS)])  # no "WHAT"
FUNCTION_WORDS, _OPENING_VERBS, _INTRODUCING = (
    frozenset(ENGLISH[name].split()) for name in ("function_words", "opening_verbs", "introducing")
)
_CLAUSES = re.compile(r"[,;:\u2013\u2014]+(?!\d)|\s-+\s")

RELATION_WORDS = tuple(ENGLISH["relation_words"].split())


@cached_by_text
def class_words(question: str, data_type: str, tokenize: str) -> tuple[Words | None, ...]:
    """Return the words of each of `CLASSES`, split again by a tokeniser; None where a class has no word."""
    split = tokenizer(tokenize)
    return tuple(split(" ".join(group)) if group else None for group in sort_words(question, data_type))


def has_question_word(text: str) -> bool:
    """Return whether a text contains a question word, "what?" and "WHO" included."""
    return not set(_LOWER_QUESTION_WORDS).isdisjoint(ptb(text))


def asks(text: str) -> bool:
    """Return whether a text has a question word, or opens with a verb as yes-no questions do ("Is ...", "Did ...")."""
    return has_question_word(text) or not _OPENING_VERBS.isdisjoint(ptb(text)[:1])


def opens_question(text: str) -> bool:
    """Return whether a question word or an inverted auxiliary verb opens a clause of a text, and more words follow.

    True for "Who built it?", "Did she?", "In what year did ...", "At the end of which war ...", "In 1204, who ...",
    "If so, was it ..."; false for "The town, which ...?", "The man who ...?", "It was built by whom?", and for "Who?"
    alone. The first clause, or any other if the text begins with an introducing word ("in", "after", "according",
    "based", "using", ...), must begin with a question word or an auxiliary verb, or with an introducing word and have
    a question word before any auxiliary verb.
    """
    clauses = [words for clause in _CLAUSES.split(text) if (words := ptb(clause))]
    if not clauses:
        return False
    first = clauses[0][0]
    # "Based on it, who …", but not "Beijing, which …"
    participle = first.endswith(("ed", "ing")) and not {*clauses[0][1:2]}.isdisjoint(FUNCTION_WORDS)
    introduced = first in _INTRODUCING or first in _LOWER_QUESTION_WORDS or participle
    return any(map(_opens_question, clauses if introduced else clauses[:1]))


_NEGATED = (("ca", "n't"), ("wo", "n't"), ("sha", "n't"))  # opening verbs that lose a letter


def _opens_question(words: Words) -> bool:
    if words[0] in _OPENING_VERBS or words[:2] in _NEGATED:
        return len(words) > 1
    for at, word in enumerate(words):
        if word in _LOWER_QUESTION_WORDS:
            return len(words) > at + 1
        if word in _OPENING_VERBS or words[0] not in _INTRODUCING:
            return False
    return False


def is_empty(text: str) -> bool:
    """Return whether a text has no letter and no digit of any script, hence no word."""
    return not any(map(str.isalnum, text))


def looks_english(text: str) -> bool:
    """Return whether a text has a question word or at least two function words.

    All but 0.3 % of English questions do (SQuAD, XQuAD), and at most 6 % of those in German, Spanish, French, Russian,
    Arabic, Chinese and Japanese. One function word is weaker evidence: "in", "am" and "was" are German too.
    """
    return has_question_word(text) or len(FUNCTION_WORDS.intersection(ptb(text))) > 1


def sort_words(question: str, data_type: str = "squad") -> tuple[list[str], list[str], list[str], list[str]]:
    """Return the words of each of `CLASSES` as they are between white space; a word may fall into several, or into
    none.

    - type: question words wherever they are; the word after "what" and "which" belongs to them.
    - entity: words that begin with a capital letter ("In" at the beginning too), except a question word there.
    - content: words that are not of the type (by value), do not begin with a capital letter and are not function words
      with their punctuation ("it?" is content). For ``wikimovies``: words that contain one of `RELATION_WORDS`.
    - function: words of a fixed list, compared in lower case.
    """
    words = question.split()
    kind: list[str] = []
    for index, word in enumerate(words):
        if word in QUESTION_WORDS:
            kind += words[index : index + 2] if word.lower() in ("what", "which") else [word]
    begins_with_question_word = bool(words) and words[0].lower() in _LOWER_QUESTION_WORDS
    entity = [word for word in words[begins_with_question_word:] if word[0].isupper()]
    if data_type == "wikimovies":
        content = [word for word in words for part in RELATION_WORDS if part in word]
    else:
        others = FUNCTION_WORDS.union(kind)
        content = [word for word in words if word not in others and not word[0].isupper()]
    return content, entity, kind, [word.lower() for word in words if word.lower() in FUNCTION_WORDS]


logger = logging.getLogger(__name__)

Against = Literal["references", "context", "context_as_reference"]
Matching = Literal["bleu", "set"]
Variant = Literal["official", "paper"]

WEIGHTS: dict[str, tuple[dict[str, float], float]] = {
    "squad": ({"content": 0.36, "entity": 0.41, "type": 0.20, "function": 0.03}, 0.66),
    "readme": ({"content": 0.1, "entity": 0.6, "type": 0.2, "function": 0.1}, 0.7),
    "qrelscore": ({"content": 0.1, "entity": 0.6, "type": 0.2, "function": 0.1}, 0.7),
}
"""Weights of the classes, and delta. ``squad``: learned from human judgements on SQuAD. ``readme``: the example of the
released code's README. ``qrelscore``: those of Wang et al. 2022 (QRelScore, appendix F), the same weights; it names no
delta, so this is the README's."""

FEWEST = 3  # content words and entities, below which the fraction of words in the context is scaled down
MANY = 20  # distinct questions that a call needs to detect that they are not English


class Answerability(Metric):
    """Weighted agreement of four kinds of words, 0 to 1 (``matching="set"``: 0 to 2), with a reference question.

    The words of a question fall into four classes (`sort_words`): relevant content words, named entities (capitalised
    words), the question type (question words, and what follows "what" and "which") and function words. Per class,
    ``P`` and ``R`` are the BLEU-1 of the candidate's words against the reference's and the other way around (the
    captioning scripts', with both brevity penalties), ``F = 2 P R / (P + R)``, 1 where neither has such words and 0
    where P + R = 0. The score is the weighted sum of the four F. Several references: the one with the best score.

    ``variant="paper"`` is the F of weighted sums instead (Ji et al. 2022, equation 3): with h the number of the
    candidate's words of a class that occur among the reference's, ``P = sum of w h / candidate words``, ``R = sum of
    w h / reference words``, ``2 P R / (P + R)``. A class that neither question has counts as 1 in both sums, as it
    does in the released code; the equation has 0 / 0 there.

    ``matching="set"`` is the variant of JRC1995/QuestionGenerationPub: with tp the candidate's words that occur in the
    reference's, ``P = tp / candidate words`` and ``R = tp / reference words``; a repeated word can push R, and so the
    score, above 1 ("Q? Q?" scores 1.14 against "Q?"). (That code restores case before it sorts words:
    `rewards.overlap.truecased`.)

    ``against="context"`` (reference-free, an addition): the context is the reference. A question need not repeat the
    whole passage, so recall and brevity are left out:

    - A text that does not ask (`asks`: no question word, and no "is", "did", ... in front) scores 0 everywhere.
    - ``content`` and ``entity``: the fraction of the class's distinct words that are in the context. If a question has
      words of one of the two classes only, the other class gets the same value; where both together have fewer than
      three words, the value is that fraction of three (19 of 20 questions of SQuAD have three), so that one correct
      word is not enough.
    - ``type``: 1 if there is a question word, since a passage cannot show which; ``function``: the fraction, 0 if
      none.

    It does not show whether a question can be answered or is well formed: as a reward it must be combined with one
    that penalises copying and broken language (docs/explanation/metrics.md has the table).

    ``against="context_as_reference"`` is what Wang et al. 2022 (QRelScore, appendix F) call *free*: the context stands
    in the reference's place and nothing else changes. A question has far fewer words than a passage, hence low values.

    Differences from the released code: PTB words by regular expressions instead of Java (`rewards.words.ptb`; given
    the same words, equal to 1e-9). An empty question raises there and scores 0 here, as does one without any letter or
    digit. The paper finds named entities by a tagger, the code by capital letters, and so does this class. As there, a
    sign between spaces is classified as a content word and then is not a PTB word: "Who is it ?" scores 0.64 against
    itself.

    The lists of words are English (``words:en`` in the signature); in other languages all words are content or
    entities. Where most questions of a call do not look English, this is logged once.

    Parts: the value (F) of each class; of the paper's variant ``precision`` and ``recall`` too, the weighted sums.

    Args:
        weights: ``"squad"``, ``"readme"``, ``"qrelscore"``, or a mapping of `CLASSES` to weights (``function`` left
            out: what is missing to 1).
        data_type: ``"squad"`` (any text), or ``"wikimovies"``, whose content words are a list of relation words.
        matching: ``"bleu"`` or ``"set"``; None takes the variant's: ``bleu``, or the paper's counts, ``set``.
    """

    name = "answerability"
    part_names: tuple[str, ...] = CLASSES

    def __init__(
        self,
        weights: str | Mapping[str, float] = "squad",
        *,
        data_type: str = "squad",
        variant: Variant = "official",
        matching: Matching | None = None,
        against: Against = "references",
        tokenize: str = "ptb",
    ) -> None:
        self.weights = self._weights(weights)
        self._class_weights = np.array([self.weights[name] for name in CLASSES])
        if matching is None:
            matching = "set" if variant == "paper" else "bleu"
        self.data_type = one_of(self.name, "data_type", data_type, DATA_TYPES)
        self.variant = one_of(self.name, "variant", variant, get_args(Variant))
        self.matching = one_of(self.name, "matching", matching, get_args(Matching))
        self.against, self.tokenize = one_of(self.name, "against", against, get_args(Against)), tokenize
        if variant == "paper" and against == "context":
            raise MetricInputError(
                f"{self.name}: against=context has a formula of its own; use against=context_as_reference with "
                "variant=paper"
            )
        self.needs = frozenset({"references" if against == "references" else "contexts"})
        self._warned = False
        self.bounds = (0.0, 2.0 if matching == "set" and against != "context" else 1.0)
        self._parts = CLASSES if variant == "official" else (*CLASSES, "precision", "recall")
        self.part_names = self._parts
        tokenizer(tokenize)

    def choices(self) -> Mapping[str, object]:
        return {
            "weights": ",".join(f"{name}={self.weights[name]:g}" for name in CLASSES),
            "data_type": self.data_type,
            "matching": f"share_of_{FEWEST}" if self.against == "context" else self.matching,
            "against": self.against,
            **({"variant": "paper"} if self.variant == "paper" else {}),
            "words": "en",
            "tokenize": self.tokenize,
            **libraries(self.tokenize),
        }

    def compute(self, inputs: Inputs) -> MetricResult:
        self._check_language(inputs.questions)
        values = self._values(inputs)
        values[[is_empty(text) for text in inputs.questions]] = 0.0
        parts = {name: values[:, column].tolist() for column, name in enumerate(self._parts)}
        return MetricResult(self._score(values).tolist(), parts)

    def _check_language(self, questions: Sequence[str]) -> None:
        distinct = {text for text in questions if not is_empty(text)}
        foreign = 0 if self._warned or len(distinct) < MANY else sum(not looks_english(text) for text in distinct)
        if 2 * foreign > len(distinct):
            self._warned = True
            logger.warning(
                "%s: %d of %d questions have no English question word and hardly a function word; its lists of words "
                "are English, and in other languages every word counts as a content word or an entity (logged once)",
                *(self.name, foreign, len(distinct)),
            )

    def _score(self, values: Floats) -> Floats:
        if self.variant == "paper":
            return f_score(values[:, -2], values[:, -1])
        return values[:, : len(CLASSES)] @ self._class_weights

    def _values(self, inputs: Inputs) -> Floats:
        pairs, owners = inputs.pairs(self.against)
        if self.against == "context":
            return np.array([self._fractions_in_context(*pair) for pair in pairs])
        words = [[class_words(text, self.data_type, self.tokenize) for text in pair] for pair in pairs]
        agreement = _set_agreement if self.matching == "set" else _bleu_agreement
        both = [
            agreement([given[at] for given, _ in words], [gold[at] for _, gold in words]) for at in range(len(CLASSES))
        ]
        precision, recall = (np.column_stack(side) for side in zip(*both, strict=True))
        values = f_score(precision, recall)
        if self.variant == "paper":
            values = np.column_stack([values, precision @ self._class_weights, recall @ self._class_weights])
        return values[best_of_groups(self._score(values), np.flatnonzero(np.diff(owners, prepend=-1)))]

    def _fractions_in_context(self, question: str, context: str) -> list[float]:
        if not asks(question):
            return [0.0] * len(CLASSES)
        available = {word.lower() for word in tokenizer(self.tokenize)(context)}
        groups = class_words(question, self.data_type, self.tokenize)
        words = [{word.lower() for word in group or ()} for group in groups]
        content, entity, _, function = (len(group & available) / len(group) if group else None for group in words)
        enough = min(1.0, (len(words[0]) + len(words[1])) / FEWEST)
        return [
            enough * (content if content is not None else entity or 0.0),
            enough * (entity if entity is not None else content or 0.0),
            float(has_question_word(question)),
            function or 0.0,
        ]

    def _weights(self, given: str | Mapping[str, float]) -> dict[str, float]:
        if isinstance(given, str):
            if given not in WEIGHTS:
                known = ", ".join(WEIGHTS)
                raise MetricInputError(f"{self.name}: weights {given!r} do not exist; use {known} or a mapping")
            return WEIGHTS[given][0]
        if not isinstance(given, Mapping):
            raise MetricInputError(f"{self.name}: weights {given!r:.40} are not a mapping of {', '.join(CLASSES)}")
        if unknown := sorted(map(str, given.keys() - set(CLASSES))):
            raise MetricInputError(f"{self.name}: weights have no class {unknown[0]!r}; classes: {', '.join(CLASSES)}")
        weights = {name: number(self.name, f"weights.{name}", given.get(name, 0.0), low=0, high=1) for name in CLASSES}
        if "function" not in given:
            weights["function"] = round(1 - sum(weights.values()), 12)
        if min(weights.values()) < 0 or abs(sum(weights.values()) - 1) > 1e-6:
            raise MetricInputError(f"{self.name}: weights {weights} must not be negative, and sum to 1")
        return weights


class QMetric(Answerability):
    """Q-BLEU, Q-ROUGE-L or Q-METEOR: delta * answerability + (1 - delta) * n-gram metric; range of `Answerability`.

    Source: Nema and Khapra 2018, equation 4. The n-gram metric is that of the captioning scripts (`Bleu` and `RougeL`
    with ``variant="coco"``) or `Meteor`, on the whole question; with several references it uses all of them.
    (Q-NIST, which the released code reads from a file of another program, is left out.) Everything documented for
    `Answerability` applies; against the context the n-gram metric, too, leaves out recall and brevity (BLEU's
    precisions, ROUGE-L's precision, METEOR with alpha = 0). Q-BLEU_free of Wang et al. 2022 (QRelScore, appendix F) is
    ``against="context_as_reference", weights="qrelscore"``, short names ``q_bleu1_free`` to ``q_bleu4_free`` (the text
    does not say which), ``q_rouge_l_free`` and ``q_meteor_free``.

    ``ngram`` is ``"bleu1"`` to ``"bleu4"``, ``"rouge_l"`` or ``"meteor"``; ``delta`` is the weight of answerability:
    None takes the one that belongs to named weights, and 0.66 for others. The other arguments are those of
    `Answerability`. Parts: the value of each class, ``answerability`` and ``ngram``.
    """

    name = "q_metric"
    part_names = (*CLASSES, "answerability", "ngram")

    def __init__(
        self,
        ngram: str = "bleu4",
        weights: str | Mapping[str, float] = "squad",
        delta: float | None = None,
        *,
        data_type: str = "squad",
        variant: Variant = "official",
        matching: Matching | None = None,
        against: Against = "references",
        tokenize: str = "ptb",
    ) -> None:
        super().__init__(
            weights, data_type=data_type, variant=variant, matching=matching, against=against, tokenize=tokenize
        )
        self.ngram = ngram
        known = WEIGHTS[weights if isinstance(weights, str) else "squad"][1]
        self.delta = known if delta is None else number(self.name, "delta", delta, low=0, high=1)
        self.part_names = (*self._parts, "answerability", "ngram")
        whole = against != "context"
        if ngram in {f"bleu{order}" for order in range(1, 5)}:
            self._ngram: OverlapMetric = Bleu(int(ngram[-1]), "coco", tokenize=tokenize, brevity=whole)
        elif ngram == "rouge_l":
            self._ngram = RougeL("coco", tokenize=tokenize)
        elif ngram == "meteor":
            self._ngram = Meteor(tokenize) if whole else Meteor(tokenize, alpha=0.0)
        else:
            raise MetricInputError(f"{self.name}: ngram {ngram!r} does not exist; use bleu1 to bleu4, rouge_l, meteor")

    def choices(self) -> Mapping[str, object]:
        inherited = super().choices()
        inner = {f"ngram.{key}": value for key, value in self._ngram.choices().items() if key not in inherited}
        case = {"ngram.case": "lower"} if self.matching == "set" else {}
        return {"ngram": self.ngram, "delta": self.delta, **inherited, **inner, **case}

    def compute(self, inputs: Inputs) -> MetricResult:
        answerability = super().compute(inputs)
        questions = inputs.questions
        gold: list[tuple[str, ...]] = [(text,) for text in inputs.contexts]
        gold = inputs.references if self.against == "references" else gold
        if self.matching == "set":  # that code compares whole questions in lower case
            questions = [text.lower() for text in questions]
            gold = [tuple(text.lower() for text in group) for group in gold]
        result = self._ngram.compute(replace(inputs, questions=questions, references=gold))
        ngram = result.parts.get("precision", result.scores) if self.against == "context" else result.scores
        ngram = [0.0 if is_empty(text) else value for text, value in zip(inputs.questions, ngram, strict=True)]
        pairs = zip(answerability.scores, ngram, strict=True)
        scores = [self.delta * first + (1 - self.delta) * second for first, second in pairs]
        return MetricResult(scores, {**answerability.parts, "answerability": answerability.scores, "ngram": ngram})


def _bleu_agreement(candidates: list[Words | None], references: list[Words | None]) -> tuple[Floats, Floats]:
    """Return BLEU-1 of each pair of word lists, and that of the other direction; None is a class without words."""
    overlap = ngram_overlap([words or () for words in candidates], [[words or ()] for words in references], 1)
    length, reference = overlap.lengths.astype(float), overlap.closest.astype(float)
    matches = overlap.matches.astype(float)
    precision = coco_bleu(length, reference, matches, length[:, None])
    recall = coco_bleu(reference, length, matches, reference[:, None])
    neither = [given is None and gold is None for given, gold in zip(candidates, references, strict=True)]
    return np.where(neither, 1.0, precision), np.where(neither, 1.0, recall)


def _set_agreement(candidates: list[Words | None], references: list[Words | None]) -> tuple[Floats, Floats]:
    """Return the fractions of both lists that common words make, counted in the candidate only, in lower case."""
    rows = []
    for candidate, reference in zip(candidates, references, strict=True):
        given, gold = candidate or (), {word.lower() for word in reference or ()}
        common = sum(word.lower() in gold for word in given)
        both = (common / max(len(given), 1), common / max(len(reference or ()), 1))
        rows.append(both if given or gold else (1.0, 1.0))
    precision, recall = (np.array(column) for column in zip(*rows, strict=True))
    return precision, recall
