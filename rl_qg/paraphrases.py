"""The same question in other words: supplied pairs, a supplied model, or rules for English.

Rules change few words and never the meaning; people change more. Where it matters, supply pairs or a model.
"""

import random
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from tqdm import tqdm

from rl_qg.errors import InputError
from rl_qg.filters import words
from rl_qg.qa_sources import line_rows

_ALTERNATIVES = {
    "how many": ("what number of",),
    "how much": ("what amount of",),
    "in what year": ("in which year",),
    "in which year": ("in what year",),
    "what kind of": ("what type of", "what sort of"),
    "what kinds of": ("what types of",),
    "what type of": ("what kind of", "what sort of"),
    "what types of": ("what kinds of",),
    "where": ("in what place", "at which place"),
    "when": ("at what time", "at which point in time"),
    "why": ("for what reason",),
    "who": ("which person",),
}
_SYNONYMS = (
    "begin/start begins/starts began/started located/situated called/named big/large built/constructed film/movie "
    "films/movies usually/normally bought/purchased help/assist helped/assisted use/utilize used/utilized near/beside "
    "nearly/almost city/town country/nation countries/nations children/kids job/occupation important/significant "
    "ended/finished end/finish end/finish happened/occurred happen/occur made/created gave/provided shows/displays "
    "whole/entire rich/wealthy"
)
_SYNONYM = {word: other for pair in _SYNONYMS.split() for word, other in (pair.split("/"), pair.split("/")[::-1])}
_CONTRACTED = {
    **{"what is": "what's", "who is": "who's", "where is": "where's", "is not": "isn't", "are not": "aren't"},
    **{"was not": "wasn't", "were not": "weren't", "did not": "didn't", "does not": "doesn't", "do not": "don't"},
    **{"could not": "couldn't", "would not": "wouldn't", "has not": "hasn't", "had not": "hadn't"},
}
_NAME_OF = re.compile(r"what (is|was|are|were) the names? of (.+?)\s*\?", re.IGNORECASE)
_WHEN_BEHIND = re.compile(
    r"(.+?) ((?:in|during|since|by|before|after) (?:the )?(?:[A-Z][a-z]+ )?\d{4}(?:s|'s)?)\s*\?", re.IGNORECASE
)
_WHAT_NOUN = re.compile(
    r"\bwhat (?!is\b|was\b|are\b|were\b|do\b|does\b|did\b|has\b|have\b|had\b|can\b|could\b|will\b)"
    r"(?!would\b|should\b|may\b|might\b|must\b|kinds?\b|types?\b|else\b|happen|the\b|'|’)(?=[^\W\d_])",
    re.I,
)


def by_rules(question: str, chance: random.Random) -> tuple[str, list[str]] | None:
    """A paraphrase and the rules that made it; None where none applies.

    Word order (a year at the end comes first; `What is the name of X?` becomes `What is X called?`), another question
    word, contractions and their opposite, and a synonym.
    """
    text, used = question, list[str]()
    for name, rule in (
        ("name", _called),
        ("order", _fronted),
        ("question word", _asked_otherwise),
        ("contraction", _contracted),
        ("synonym", _synonym),
    ):
        changed = rule(text, chance)
        if changed != text:
            text, used = changed, [*used, name]
    return (text, used) if words(text) != words(question) else None


def _called(text: str, _: random.Random) -> str:
    match = _NAME_OF.fullmatch(text.strip())
    return f"{text.strip()[:4]} {match[1]} {match[2]} called?" if match else text


def _fronted(text: str, _: random.Random) -> str:
    match = _WHEN_BEHIND.fullmatch(text.strip())
    if match is None or match[1].split()[0].casefold() in ("is", "in"):
        return text
    return f"{_capital(match[2])}, {_small(match[1])}?" if text[0].isupper() else f"{match[2]} , {match[1]} ?"


def _asked_otherwise(text: str, chance: random.Random) -> str:
    for phrase, others in _ALTERNATIVES.items():
        match = re.search(rf"\b{phrase}\b(?!['’])", text, re.IGNORECASE)
        if match and (match.start() == 0 or text[: match.start()].rstrip().endswith(",")):
            if phrase == "who" and re.match(r"\s+(?:are|were|do|have|did)\b", text[match.end() :]):
                return text
            return _put(text, match, chance.choice(others))
    match = _WHAT_NOUN.search(text)
    return _put(text, match, "which ") if match else text


def _contracted(text: str, _: random.Random) -> str:
    for long, short in _CONTRACTED.items():
        for old, new in ((long, short), (short, long)):
            if match := re.search(rf"\b{old}\b", text.replace("’", "'"), re.IGNORECASE):
                return _put(text, match, new)
    return text


def _synonym(text: str, _: random.Random) -> str:
    for match in re.finditer(r"[^\W\d_]+", text):
        if match.group() in _SYNONYM:  # lower case: not within a name
            return _put(text, match, _SYNONYM[match.group()])
    return text


def _put(text: str, match: re.Match[str], new: str) -> str:
    new = _capital(new) if match.group()[0].isupper() else new
    return text[: match.start()] + new + text[match.end() :]


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def _small(text: str) -> str:
    """The first word in small letters if it is a word that asks; a name keeps its capital."""
    first = text.split()[0]
    return text[:1].lower() + text[1:] if first.casefold() in ("what", "who", "which", "how", "where", "why") else text


def read_pairs(path: Path) -> dict[str, str]:
    """Question -> paraphrase, of JSON lines {question, paraphrase}. Raises `InputError` for a line without both."""
    if not path.is_file():
        raise InputError(f"paraphrases={path}: no such file; give JSON lines with question and paraphrase")
    pairs: dict[str, str] = {}
    for where, _, record in line_rows(path):
        given = [record.get(key) for key in ("question", "paraphrase")]
        if not all(isinstance(text, str) and text.strip() for text in given):
            raise InputError(f"{where}: give question and paraphrase, both as text")
        pairs.setdefault(given[0], given[1])
    return pairs


def by_model(
    model: str, prefix: str, questions: Sequence[str], *, batch_size: int = 16, max_new_tokens: int = 64
) -> Iterator[str]:
    """What a seq2seq model makes of each question by beam search with four beams. Raises `InputError` where it cannot
    be loaded.
    """
    import torch
    from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

    try:
        tokenizer: Any = AutoTokenizer.from_pretrained(model)
        network: Any = AutoModelForSeq2SeqLM.from_pretrained(model)
    except (OSError, ValueError) as error:
        raise InputError(f"paraphraser={model}: cannot be loaded ({str(error).splitlines()[0]})") from None
    device = "cuda" if torch.cuda.is_available() else "cpu"
    network.to(device).eval()
    with tqdm(total=len(questions), desc="paraphrase", unit="question", leave=False) as bar:
        for start in range(0, len(questions), batch_size):
            batch = [prefix + question for question in questions[start : start + batch_size]]
            given = tokenizer(batch, padding=True, truncation=True, return_tensors="pt").to(device)
            given.pop("token_type_ids", None)
            with torch.inference_mode():
                ids = network.generate(**given, num_beams=4, do_sample=False, max_new_tokens=max_new_tokens)
            yield from tokenizer.batch_decode(ids, skip_special_tokens=True)
            bar.update(len(batch))
