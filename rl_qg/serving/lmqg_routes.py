"""`POST /question_generation` as lmqg's server has it (its `app.py`), so that its clients work unchanged.

Fields, defaults and the score are lmqg's: 1 minus the longest common substring of text and question, divided by the
length of the question, and pairs sorted by it. What differs: errors are problem JSON (there: 404 without a reason); a
`highlight` that is not in the text is an error (there it is built but not raised); and the fields that choose a model
or its decoding are accepted but have no effect, because a server has one model and decodes by beam search.
"""

from typing import Annotated, Literal

from fastapi import APIRouter, Depends, Request
from fastapi.security import HTTPBearer
from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from rl_qg.asking.pairs import AskRequest, QAPairs
from rl_qg.serving.messages import TEXT, GivenAnswer, Text, Warned, usable
from rl_qg.serving.problems import problem_responses, wrong_field
from rl_qg.serving.requests import check_text, given_answers, until_client_leaves
from rl_qg.serving.service import AskingService
from rl_qg.settings.web import ServeSettings
from rl_qg.text.spans import sentence_texts

LANGUAGES = {
    **{"english": "en", "japanese": "ja", "german": "de", "spanish": "es", "italian": "it"},
    **{"korean": "ko", "russian": "ru", "french": "fr", "chinese": "zh"},
}
# What each type of lmqg may be done with, best first. Its "Multitask" takes pipeline models too.
WAYS_OF_TYPE = {
    "Multitask": ("multitask", "pipeline", "end2end"),
    "Pipeline": ("pipeline", "multitask"),
    "End2End": ("end2end",),
}


def _all_usable(given: str | list[str] | None) -> str | list[str] | None:
    for text in [given] if isinstance(given, str) else given or []:
        usable(text)
    return given


Highlights = Annotated[str | list[str] | None, AfterValidator(_all_usable)]


class GenerationRequest(BaseModel):
    """The fields of lmqg; others are ignored."""

    model_config = ConfigDict(extra="ignore", json_schema_extra={"examples": [{"input_text": TEXT, "language": "en"}]})
    input_text: Text
    language: str = Field(default="en", description="a code, or the English name")
    qag_type: Literal["End2End", "Multitask", "Pipeline"] | None = Field(default=None, description="null: Multitask")
    highlight: Highlights = Field(default=None, description="the answer, or answers, to ask about")
    split: Literal["paragraph", "sentence"] | None = "paragraph"
    model: str | None = Field(default=None, description="no effect")
    num_beams: Annotated[int, Field(ge=1)] | None = Field(default=4, description="no effect")
    use_gpu: bool | None = Field(default=False, description="no effect")
    do_sample: bool | None = Field(default=True, description="no effect")
    top_p: Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)] | None = Field(
        default=0.9, description="no effect"
    )
    max_length: Annotated[int, Field(ge=1)] | None = Field(default=64, description="no effect")


class GeneratedQuestion(BaseModel):
    """A question, its answer, and how little of the question is copied from the text, from 0 to 1."""

    question: str
    answer: str
    score: float


class GenerationResponse(BaseModel):
    """Questions, those with the highest score first."""

    qa: list[GeneratedQuestion]
    warning: Warned = ""


def lmqg_routes(service: AskingService, settings: ServeSettings) -> APIRouter:
    router = APIRouter(
        responses=problem_responses(), tags=["lmqg"], dependencies=[Depends(HTTPBearer(auto_error=False))]
    )

    @router.post(
        "/question_generation",
        summary="Question-answer pairs, for clients of lmqg",
        response_model_exclude_defaults=True,  # lmqg has no warning
    )
    async def question_generation(body: GenerationRequest, request: Request) -> GenerationResponse:
        asked = lmqg_request(body, service, settings)
        found = await until_client_leaves(request, service.pairs(asked, by_sentence=body.split == "sentence"))
        return GenerationResponse(qa=ranked(body.input_text, found), warning=service.warning)

    return router


def lmqg_request(body: GenerationRequest, service: AskingService, settings: ServeSettings) -> AskRequest:
    """What a client of lmqg asks: a question for each highlight, else for each sentence."""
    check_text(body.input_text, settings)
    highlights = [body.highlight] if isinstance(body.highlight, str) else body.highlight or []
    given = [GivenAnswer(text=text) for text in highlights if text.strip()]
    spans = given_answers(body.input_text, given, settings, field="highlight") if given else None
    number = min(len(spans or sentence_texts(body.input_text)), settings.max_questions)
    kind, language = body.qag_type or "Multitask", _language(body.language)
    way = next((way for way in WAYS_OF_TYPE[kind] if way in service.ways), None)
    if way is None and service.ways:  # without ways the model is being loaded: the service answers that
        raise wrong_field("qag_type", f"this model cannot {kind}; it can {', '.join(service.ways)}")
    return AskRequest(body.input_text, spans, number, language, None, way)


def ranked(text: str, pairs: QAPairs) -> list[GeneratedQuestion]:
    """Pairs with lmqg's score, the highest first; equal ones in the order of the text."""
    scored = [
        GeneratedQuestion(question=pair.question, answer=pair.answer, score=novelty(text, pair.question))
        for pair in sorted(pairs, key=lambda pair: pair.answer_start)
    ]
    return sorted(scored, key=lambda item: -item.score)


def novelty(text: str, question: str) -> float:
    """1 - len(longest common substring of text and question) / len(question); 0 for an empty question."""
    if not question:
        return 0.0
    shortest, longest = 0, len(question)  # a common substring of some length has one of each smaller length in it
    while shortest < longest:
        middle = (shortest + longest + 1) // 2
        if any(question[at : at + middle] in text for at in range(len(question) - middle + 1)):
            shortest = middle
        else:
            longest = middle - 1
    return 1 - shortest / len(question)


def _language(name: str) -> str:
    code = LANGUAGES.get(name.strip().casefold(), name.strip().casefold())
    if not (code.isascii() and code.isalpha() and len(code) in (2, 3)):
        detail = "is no code such as en, and none of " + ", ".join(map(str.capitalize, LANGUAGES))
        raise wrong_field("language", detail)
    return code
