"""The same question in other words: supplied pairs, a supplied model, or rules for English.

Rules change few words and keep the meaning; people change more. Where that matters, supply pairs or a model. And the
question negated, as in QRelScore, Appendix C: of the auxiliary and modal verbs one is drawn and *not* is added, or
WordNet gives an antonym. The paper's Table 7 contracts (`doesn't`), and so do these rules.
"""

import random
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from rl_qg.data.formats import json_line_rows
from rl_qg.runtime.bars import ProgressBar
from rl_qg.runtime.errors import InputError
from rl_qg.runtime.files import packaged_yaml
from rl_qg.scoring.wrong_questions import WORD, Perturbation, cased, replaced
from rl_qg.text import english
from rl_qg.text.words import normalised_words

Antonyms = Callable[[str], Sequence[str]]  # of the base form of a verb
_WORDS: dict[str, Any] = packaged_yaml(__file__, "paraphrases.yaml")


def _pairs(name: str) -> dict[str, str]:
    return dict(pair.split("/") for pair in _WORDS[name].split())


_AUXILIARY = _WORDS["auxiliary"]
_QUESTION_WORDS = {
    pattern.replace("AUXILIARY", _AUXILIARY).replace("MOTION", _WORDS["motion"]): others
    for pattern, others in _WORDS["question_words"].items()
}
_BOTH_WAYS = _pairs("both_ways")
_SYNONYM = _BOTH_WAYS | _pairs("one_way") | {other: word for word, other in _BOTH_WAYS.items()}
_CONTRACTED, _NEGATED = _pairs("contracted"), _pairs("negated")
_AFFIRMED = {negated: plain for plain, negated in reversed(_NEGATED.items())} | _pairs("affirmed")
_ATTACHED, _CLAUSE, _BE = (frozenset(_WORDS[name].split()) for name in ("attached", "clause", "be"))
_NAME_OF = re.compile(r"what (is|was|are|were) the names? of (.+?)\s*\?", re.IGNORECASE)
_FINAL_YEAR = re.compile(
    r"(.+?) ((?:in|during|since|by|before|after) (?:the )?(?:[A-Z][a-z]+ )?\d{4}(?:s|'s)?)\s*\?", re.IGNORECASE
)


def by_rules(question: str, chance: random.Random) -> tuple[str, list[str]] | None:
    """A paraphrase and the rules that made it; None where none applies.

    Word order (a year at the end comes first; `What is the name of X?` becomes `What is X called?`, `Who wrote it?`
    `Who was it that wrote it?`), another question word, contractions and their opposite, and a synonym. A rule that
    cannot be sure of grammar and meaning leaves the question as it is.
    """
    text, used = question, list[str]()
    for name, rule in (
        ("name", _called),
        ("order", _fronted),
        ("cleft", _cleft),
        ("question word", _other_question_word),
        ("contraction", _contracted),
        ("synonym", _synonym),
    ):
        changed = rule(text, chance)
        if changed != text:
            text, used = changed, [*used, name]
    return (text, used) if normalised_words(text) != normalised_words(question) else None


def _called(text: str, _: random.Random) -> str:
    match = _NAME_OF.fullmatch(text.strip())
    if match is None or _CLAUSE & set(match[2].casefold().split()):
        return text
    return f"{text.strip()[:4]} {match[1]} {match[2]} called?"


def _fronted(text: str, _: random.Random) -> str:
    match = _FINAL_YEAR.fullmatch(text.strip())
    if match is None:
        return text
    tokens = match[1].split()
    low = [word.casefold().strip(",") for word in tokens]
    last, before = low[-1], low[-2] if len(low) > 1 else ""
    participle = last.endswith("ed") or last in english.VERBS
    if (
        low[0] not in english.CLOSED - english.PREPOSITIONS - _BE
        or (tokens[0].isupper() and len(tokens[0]) > 1)
        or last in english.CLOSED | _ATTACHED
        or last[-1:].isdigit()
        or tokens[-1].endswith(",")
        or (participle and before not in _BE)
        or _CLAUSE & set(low[2:])
    ):
        return text
    first = match[1] if tokens[0] == "I" else match[1][:1].lower() + match[1][1:]
    return f"{_capital(match[2])}, {first}?" if text.strip()[0].isupper() else f"{match[2]} , {first} ?"


def _cleft(text: str, _: random.Random) -> str:
    tokens = text.split()
    asks_subject = len(tokens) > 2 and tokens[0].casefold() in ("who", "what") and english.subject_verb(tokens) == 1
    if not asks_subject or not (english.is_past(tokens[1]) or tokens[1].endswith("ed")):
        return text
    return " ".join([tokens[0], "was it that", *tokens[1:]])


def _other_question_word(text: str, chance: random.Random) -> str:
    for pattern, others in _QUESTION_WORDS.items():
        match = re.match(rf"(?:.*, )?({pattern})", text, re.IGNORECASE)
        if match:
            return _put(text, match.span(1), chance.choice(others))
    match = re.match(r"(?:.*, )?(?:(?:in|on|at|for|by|from|to|with) )?(what) (\w+) (\w+)", text, re.IGNORECASE)
    if match is None or not english.is_noun(match[2].casefold()) or match[2].casefold() in ("kind", "type", "sort"):
        return text
    third = match[3].casefold()
    return _put(text, match.span(1), "which") if re.match(_AUXILIARY, third) or english.is_past(third) else text


def _contracted(text: str, _: random.Random) -> str:
    if match := re.match(r"(what|who|where) is(?= [^\W\d_])(?! it\b)", text, re.IGNORECASE):
        return _put(text, match.span(), f"{match[1].casefold()}'s")
    match = re.match(r"(what|who|where)['’]s(?= (\w+))", text, re.IGNORECASE)
    if match and match[2].casefold() in english.DETERMINERS:
        return _put(text, match.span(), f"{match[1].casefold()} is")
    for long, short in _CONTRACTED.items():
        if match := re.search(rf"\b{long} not\b", text, re.IGNORECASE):
            return _put(text, match.span(), short)
        match = re.search(rf"(?<!\w)(\w++) ({short})(?= (\w+))", text.replace("’", "'"), re.IGNORECASE)
        if match and match[1].casefold() not in english.ASKING - {"who"}:
            subject = match[3].casefold() in english.DETERMINERS | english.PRONOUNS or not match[3].islower()
            return text if subject else _put(text, match.span(2), f"{long} not")
    return text


def _synonym(text: str, _: random.Random) -> str:
    for pattern, other in _WORDS["phrases"].items():
        if match := re.search(rf"(?<![\w’'-]){pattern}", text):
            return _put(text, match.span(), other)
    for match in re.finditer(r"[^\W_]+(?:[-'’][^\W_]+)*", text):
        if match.group() in _SYNONYM:  # lower case and whole: not within a name or a compound
            return _put(text, match.span(), _SYNONYM[match.group()])
    return text


def _put(text: str, span: tuple[int, int], new: str) -> str:
    start, end = span
    return text[:start] + (_capital(new) if text[start].isupper() else new) + text[end:]


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def read_pairs(path: Path) -> dict[str, str]:
    """Question -> paraphrase, of JSON lines {question, paraphrase}. Raises `InputError` for a line without both."""
    if not path.is_file():
        raise InputError(f"paraphrases={path}: no such file; give JSON lines with question and paraphrase")
    pairs: dict[str, str] = {}
    for where, _, record in json_line_rows(path):
        given = [record.get(key) for key in ("question", "paraphrase")]
        if not all(isinstance(text, str) and text.strip() for text in given):
            raise InputError(f"{where}: give question and paraphrase, both as text")
        pairs.setdefault(given[0], given[1])
    return pairs


def by_model(
    model: str, prefix: str, questions: Sequence[str], *, batch_size: int = 16, use_cpu: bool = False
) -> Iterator[str]:
    write = seq2seq(model, "paraphraser", use_cpu=use_cpu)
    with ProgressBar(total=len(questions), desc="paraphrase", unit="question", leave=False) as bar:
        for start in range(0, len(questions), batch_size):
            batch = [prefix + question for question in questions[start : start + batch_size]]
            yield from write(batch)
            bar.update(len(batch))


def seq2seq(model: str, key: str, *, use_cpu: bool = False) -> Callable[[Sequence[str]], list[str]]:
    """What writes a text for each of a batch by a seq2seq model, by beam search with four beams; `key` is the setting
    that names the model. Raises `InputError` for a model that cannot be loaded.
    """
    import torch
    from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

    from rewards.pretrained import ModelFault, explained

    try:
        with explained(model):
            tokenizer: Any = AutoTokenizer.from_pretrained(model, trust_remote_code=False)
            network: Any = AutoModelForSeq2SeqLM.from_pretrained(model, trust_remote_code=False)
    except ModelFault as fault:
        raise InputError(f"{key}={model}: cannot be loaded ({fault})") from None
    device = "cuda" if torch.cuda.is_available() and not use_cpu else "cpu"
    network.to(device).eval()

    def write(texts: Sequence[str]) -> list[str]:
        given = tokenizer(list(texts), padding=True, truncation=True, return_tensors="pt").to(device)
        given.pop("token_type_ids", None)
        with torch.inference_mode():
            ids = network.generate(**given, num_beams=4, do_sample=False, max_new_tokens=64)
        return tokenizer.batch_decode(ids, skip_special_tokens=True)

    return write


def negate(question: str, chance: random.Random | None = None) -> Perturbation | None:
    """Negate an auxiliary or modal verb, or affirm the question where it is negated; without such a verb negate the
    verb of a question word that is its subject (`What doesn't control wages?`). None where there is neither. `chance`
    draws one of several verbs; None: the first.
    """
    matches = list(WORD.finditer(question))
    for index, match in enumerate(matches):
        only = _next(matches, index) == "only" or (index and matches[index - 1].group().casefold() == "or")
        if match.group() in ("not", "never", "NOT", "NEVER") and not only:
            start = len(question[: match.start()].rstrip())
            return Perturbation(
                question[:start] + question[match.end() :], question[start : match.end()], "", "affirmed"
            )
    if changes := list(_changed_auxiliaries(question, matches)):
        return changes[0] if chance is None else chance.choice(changes)
    verb = english.subject_verb([match.group() for match in matches])
    if verb is None:
        return None
    word = matches[verb].group()
    base = english.base_form(word)
    auxiliary = "don't" if word == base else "doesn't" if word.endswith("s") else "didn't"
    return replaced(question, matches[verb], f"{auxiliary} {base}", "negated verb")


def _changed_auxiliaries(question: str, matches: Sequence[re.Match[str]]) -> Iterator[Perturbation]:
    for index, match in enumerate(matches):
        word = match.group().casefold().replace("’", "'")
        separate = re.match(r"\s+n't\b", question[match.end() :])
        if word in _AFFIRMED:
            yield replaced(question, match, cased(_AFFIRMED[word], match.group()), "affirmed")
        elif word in _NEGATED and _is_auxiliary(matches, index):
            if separate:
                text = question[: match.end()] + question[match.end() + separate.end() :]
                yield Perturbation(text, match.group() + separate.group(), match.group(), "affirmed")
            else:
                new = _WORDS["main_have"].get(word) if _next(matches, index) in english.DETERMINERS else None
                yield replaced(question, match, cased(new or _NEGATED[word], match.group()), "negated")


def _is_auxiliary(matches: Sequence[re.Match[str]], index: int) -> bool:
    """Whether a word is an auxiliary: no name (`in May`, `Will Smith`), no noun (`the will`), not after `to`."""
    if not index:
        return True
    before = matches[index - 1].group().casefold()
    return matches[index].group().islower() and before != "to" and before not in english.DETERMINERS


def _next(matches: Sequence[re.Match[str]], index: int) -> str:
    return matches[index + 1].group().casefold() if index + 1 < len(matches) else ""


def replace_by_antonym(question: str, antonyms: Antonyms, chance: random.Random) -> Perturbation | None:
    """Replace a verb by an antonym in the same form, both drawn; None where no verb has one."""
    verbs = [
        match for match in WORD.finditer(question) if match.group().islower() and match.group() not in english.CLOSED
    ]
    found = [(match, others) for match in verbs if (others := antonyms(english.base_form(match.group())))]
    if not found:
        return None
    match, others = chance.choice(found)
    before = {word.casefold() for word in WORD.findall(question[: match.start()])}
    new = english.in_the_form_of(
        chance.choice(list(others)), match.group(), participle=bool(before & english.AUXILIARIES)
    )
    return replaced(question, match, new, "antonym")


def wordnet_antonyms() -> tuple[Antonyms, str]:
    """Antonyms of verbs by WordNet through nltk, and its version. A word that is a verb less often than a noun or an
    adjective (in WordNet's counts) has none.
    """
    try:
        from nltk.corpus import wordnet

        version = f"WordNet {wordnet.get_version()}"
    except (ImportError, LookupError):
        raise InputError(
            "negation: antonyms need WordNet; pip install 'rl-qg[overlap]', then python -m nltk.downloader wordnet "
            "(or set NLTK_DATA to a folder with corpora/wordnet), or negation=not"
        ) from None

    def senses(base: str, kind: str) -> list[list[Any]]:  # the most frequent one first
        return [[lemma for lemma in one.lemmas() if lemma.name() == base] for one in wordnet.synsets(base, kind)]

    def antonyms(base: str) -> list[str]:
        verb, noun, adjective = (sum(lemma.count() for one in senses(base, kind) for lemma in one) for kind in "vna")
        if not verb or verb < max(noun, adjective):
            return []
        names = ([other.name() for lemma in one for other in lemma.antonyms()] for one in senses(base, "v"))
        return next((single for some in names if (single := [name for name in some if name.isalpha()])), [])

    return antonyms, version
