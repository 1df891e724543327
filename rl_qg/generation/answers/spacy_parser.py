"""Candidate answers from spaCy: named entities and noun chunks."""

from collections.abc import Sequence
from typing import Any

from rl_qg.runtime.errors import InputError
from rl_qg.text.spans import Span, select_spans

ENTITY, CHUNK = 2.0, 1.0  # scores: entities come before noun chunks


class SpacyAnswers:
    """Proposes the entities and, if the pipeline has a parser, the noun chunks of a spaCy pipeline.

    Args:
        model: an installed pipeline such as `en_core_web_sm`, or its folder.
        limit: maximum number of spans of a passage (None: all).

    Raises:
        InputError: spaCy or the pipeline is not installed, or it finds neither entities nor noun chunks.
    """

    def __init__(self, model: str, limit: int | None) -> None:
        self._parse = _load(model)
        self._limit = limit
        import spacy

        meta = self._parse.meta
        pipeline = f"{meta.get('lang')}_{meta.get('name')}-{meta.get('version')}: {', '.join(self._parse.pipe_names)}"
        self.made_by = {"parser": f"spacy {spacy.__version__}", "pipeline": pipeline}

    def __call__(self, contexts: Sequence[str]) -> list[list[Span]]:
        """For each passage its spans, best first."""
        self._parse.max_length = max(self._parse.max_length, *map(len, contexts))
        parsed = self._parse.pipe(contexts)
        return [select_spans(text, _spans(doc), self._limit) for text, doc in zip(contexts, parsed, strict=True)]


def _load(model: str) -> Any:
    try:
        import spacy
    except ImportError:
        raise InputError(
            "method=spacy: spaCy is not installed; pip install spacy, then python -m spacy download "
            f"{model}, or use method=rules"
        ) from None
    try:
        parse = spacy.load(model)
    except (OSError, ValueError) as error:
        raise InputError(
            f"answers.spacy_model={model}: cannot be loaded ({str(error).splitlines()[0]}); install it with python -m "
            f"spacy download {model}, name a folder, or use method=rules"
        ) from None
    if not {"ner", "entity_ruler", "span_ruler", "parser"} & set(parse.pipe_names):
        raise InputError(
            f"answers.spacy_model={model}: it finds neither entities nor noun chunks (it has "
            f"{', '.join(parse.pipe_names) or 'no component'}); name another, such as en_core_web_sm"
        )
    return parse


def _spans(doc: Any) -> list[Span]:
    spans = [Span(entity.start_char, entity.end_char, entity.label_.lower(), ENTITY) for entity in doc.ents]
    if doc.has_annotation("DEP"):
        try:
            chunks = [chunk for chunk in doc.noun_chunks if chunk.root.pos_ != "PRON"]
        except NotImplementedError:  # a language for which spaCy has no noun chunks
            chunks = []
        spans += [Span(chunk.start_char, chunk.end_char, "chunk", CHUNK) for chunk in chunks]
    return spans
