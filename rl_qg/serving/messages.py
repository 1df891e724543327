"""What clients send and get, as JSON. Offsets count Unicode characters of the given text, from 0."""

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from rl_qg.data.formats import is_unicode

TEXT = "Ada Lovelace wrote the first program in London in 1843."
PAIR: dict[str, Any] = {
    "question": "When did Ada Lovelace write the first program?",
    "answer": "1843",
    "answer_start": 50,
    "score": 0.9,
    "reason": "a date",
    "scores": {"probability": 0.9},
}


def usable(text: str) -> str:
    if "\0" in text:
        raise ValueError("has a NUL character; remove it")
    if not is_unicode(text):
        raise ValueError("has half of a surrogate pair, which is no character; remove it")
    return text


def _not_blank(text: str) -> str:
    if not text.strip():
        raise ValueError("is blank")
    return text


Text = Annotated[str, AfterValidator(usable), AfterValidator(_not_blank)]
Way = Literal["pipeline", "multitask", "end2end"]
Warned = Annotated[
    str, Field(description="of a model that knows only the embedded corpus, for people; empty for another model")
]
LanguageCode = Annotated[str, Field(pattern="^[a-z]{2,3}$", description="ISO 639-1 code")]


class Message(BaseModel):
    """Base of what clients send: no other fields, no conversions."""

    model_config = ConfigDict(extra="forbid", strict=True)


class GivenAnswer(Message):
    """An answer to ask about."""

    text: Text
    start: int | None = Field(default=None, ge=0, description="its first character; null: where it first stands")


class PairsRequest(Message):
    """A text to make question-answer pairs of."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"text": TEXT, "number": 3}]})
    text: Text
    number: int = Field(default=5, ge=1, description="of pairs; with answers there is one for each")
    seed: int | None = Field(default=None, ge=0, lt=2**32, description="draws other questions; null: the best ones")
    language: LanguageCode = "en"
    way: Way | None = Field(default=None, description="how pairs are made; null: the model's own")
    min_score: float | None = Field(
        default=None,
        ge=0,
        le=1,
        allow_inf_nan=False,
        description="pairs below are left out; null: what suits the model",
    )
    answers: list[GivenAnswer] | None = Field(default=None, min_length=1, description="null: they are proposed")


class QuestionsRequest(Message):
    """A text and the answers to ask about."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"text": TEXT, "answers": [{"text": "London"}]}]})
    text: Text
    answers: list[GivenAnswer] = Field(min_length=1)
    seed: int | None = Field(default=None, ge=0, lt=2**32)
    language: LanguageCode = "en"
    way: Way | None = None


class PairOut(BaseModel):
    """A question and its answer in the text."""

    model_config = ConfigDict(from_attributes=True, json_schema_extra={"examples": [PAIR]})
    question: str
    answer: str
    answer_start: int
    score: float = Field(description="from 0 to 1, higher is better")
    reason: str = Field(description="why the pair was chosen")
    scores: dict[str, float] = Field(description="each criterion")


class PairsResponse(BaseModel):
    """Pairs, best first."""

    pairs: list[PairOut]
    reason: str = Field(description="why there are fewer than asked for; empty if there are as many")
    dropped: dict[str, int] = Field(description="pairs that were left out, by reason")
    model: str
    warning: Warned = ""


class AnswersRequest(Message):
    """A text to find answers in."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"text": TEXT, "number": 3}]})
    text: Text
    number: int = Field(default=5, ge=1)
    language: LanguageCode = "en"


class AnswerOut(BaseModel):
    """An answer, and where it stands."""

    model_config = ConfigDict(from_attributes=True)
    text: str
    start: int
    kind: str = Field(description="what proposed it, such as date or name")
    score: float


class AnswersResponse(BaseModel):
    """Answers, best first."""

    answers: list[AnswerOut]
    model: str
    warning: Warned = ""


class ScoredPair(Message):
    """A question and its answer, to be scored."""

    question: Text
    answer: Text


class ScoreRequestBody(Message):
    """A text, and questions about it."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [{"text": TEXT, "pairs": [{"question": "Who wrote it?", "answer": "Ada Lovelace"}]}]
        }
    )
    text: Text
    pairs: list[ScoredPair] = Field(min_length=1)
    language: LanguageCode = "en"


class ScoreResponse(BaseModel):
    """The scores of each pair, in the order given."""

    scores: list[dict[str, float]]
    model: str
    warning: Warned = ""


class ExplainRequest(Message):
    """A question whose words are looked for in the text."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"text": TEXT, **{key: PAIR[key] for key in ("question", "answer")}}]}
    )
    text: Text
    question: Text
    answer: Text
    answer_start: int | None = Field(default=None, ge=0)


class WeighedToken(BaseModel):
    """A part of the text, and what it has to do with the question: from -1 (against it) to 1."""

    model_config = ConfigDict(from_attributes=True)
    start: int
    end: int
    weight: float


class ExplainResponse(BaseModel):
    """What in the text counts for the question."""

    tokens: list[WeighedToken]
    metric: str = Field(description="the one that orders the pairs, if it has an explanation; else shared words")


class ModelOut(BaseModel):
    """A model that the server has."""

    name: str
    ways: list[str]
    warning: Warned = ""


class ModelsResponse(BaseModel):
    """The models of the server: one."""

    models: list[ModelOut]


class HealthResponse(BaseModel):
    """Whether the server lives, or is ready."""

    status: str
