"""The page of an explanation, one self-contained HTML file: `explanation.html` with what this module computes."""

import json
import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from rewards.errors import library

Row = Mapping[str, Any]
Found = Sequence[tuple[int, Row]]  # the number of a layer, and one of its matches

# Ends of the scales, as the style sheet of the page has them for light and for dark screens, and the colour of 0.
BLUE, ORANGE, GREEN, RED = (f"var(--{name})" for name in ("blue", "orange", "green", "red"))
GROUND = "var(--card)"
VISIBLE = 0.05  # fraction of a scale from which on a colour can be distinguished from that of 0


def page(explanation: Row) -> str:
    """Return the page of an explanation, given as `rewards.relevance.explanation.Explanation.to_dict` returns it."""
    jinja2, markup = (library(name, "the page of an explanation", "jinja2") for name in ("jinja2", "markupsafe"))
    environment = jinja2.Environment(
        autoescape=True,
        trim_blocks=True,
        keep_trailing_newline=True,
        finalize=lambda value: value if isinstance(value, markup.Markup) else markup.Markup(escape(str(value))),
    )
    environment.filters["number"] = _number
    template = environment.from_string(Path(__file__).with_name("explanation.html").read_text(encoding="utf-8"))
    logarithmic = explanation["choices"]["confidence"] == "log_likelihood"
    found = [(layer["number"], match) for layer in explanation["layers"] for match in layer["matches"]]
    matches: dict[int, dict[int, float]] = defaultdict(lambda: defaultdict(float))  # for the page's script
    for _, match in found:
        matches[match["question_token"]][match["context_token"]] += match["weight"] * match["cosine"]
    return template.render(
        shown=explanation,
        heat=_heat_map(explanation, found),
        matched=_matched(explanation, found),
        matches=json.dumps(matches),
        labels=[_label(explanation["question_tokens"], at) for at in range(len(explanation["question_tokens"]))],
        gains=_gains(explanation),
        confidences=list(_confidences(explanation, logarithmic)),
        what="log p" if logarithmic else "p",
    )


def _heat_map(explanation: Row, found: Found) -> Row:
    """Question tokens by layers: colour and number are the contribution, the word is the matched context token."""
    words, context = explanation["question_tokens"], explanation["context_tokens"]
    matches: dict[tuple[int, int], list[Row]] = defaultdict(list)
    for number, match in found:
        matches[match["question_token"], number].append(match)
    means = {key: _mean(match["contribution"] for match in some) for key, some in matches.items()}
    scale = max(map(abs, means.values())) or 1.0

    def cell(word: int, number: int) -> Row:
        lines = [f"layer {number}"]
        for match in matches[word, number]:
            measured = ", ".join(f"{key} {_number(match[key])}" for key in ("weight", "cosine", "contribution"))
            lines.append(f"{_label(words, word)} → {_label(context, match['context_token'])}: {measured}")
        best, value = max(matches[word, number], key=lambda match: match["contribution"]), means[word, number]
        colour = _shade(value, scale, BLUE, ORANGE)
        title = "\n".join(lines)
        return {"label": _label(context, best["context_token"]), "value": value, "colour": colour, "title": title}

    numbers = [layer["number"] for layer in explanation["layers"]]
    rows = []
    for word, token in enumerate(words):
        cells = [] if token["left_out"] else [cell(word, number) for number in numbers]
        mean = _mean(each["value"] for each in cells) if cells else 0.0
        rows.append({"label": _label(words, word), "left_out": token["left_out"], "cells": cells, "mean": mean})
    return {"numbers": numbers, "rows": rows, "legend": _legend(min(means.values()), scale, BLUE, ORANGE)}


def _matched(explanation: Row, found: Found) -> Row:
    tokens, matched = explanation["context_tokens"], explanation["matched"]
    chosen: dict[int, Counter[int]] = defaultdict(Counter)
    for _, match in found:
        chosen[match["context_token"]][match["question_token"]] += 1
    groups = _groups(tokens)
    values = [sum(matched[at] for at in group) for group in groups]
    scale = max(map(abs, values), default=0.0) or 1.0
    looks = []
    for group, value in zip(groups, values, strict=True):
        if reason := tokens[group[0]]["left_out"]:
            looks.append({"class": "out", "title": f"not compared: {reason}"})
            continue
        lines = [f"{_text(explanation['context'], tokens, group)}: {_number(value)} of lrm"]
        for word, times in sum((chosen[at] for at in group), Counter[int]()).most_common():
            lines.append(f"{_label(explanation['question_tokens'], word)} in {times} layer{'s' * (times != 1)}")
        colour = f"background:{_shade(value, scale, BLUE, ORANGE)}"
        looks.append({"data-tokens": " ".join(map(str, group)), "style": colour, "title": "\n".join(lines)})
    pieces = {token["piece"] for token in tokens} - {None}
    marked = _marked(explanation["context"], tokens, groups, looks, numbered=len(pieces) > 1)
    return {**marked, "legend": _legend(min(matched), scale, BLUE, ORANGE)}


def _gains(explanation: Row) -> Row:
    tokens = [gain for gain in explanation["gains"] if gain["part"] == "context"]
    groups = _groups(tokens)
    known = [[tokens[at]["gain"] for at in group if tokens[at]["gain"] is not None] for group in groups]
    scale = max((abs(sum(values)) for values in known if values), default=0.0) or 1.0
    looks = []
    for group, values in zip(groups, known, strict=True):
        look = {"class": "alone"}
        if values:
            look = {"style": f"background:{_shade(sum(values), scale, GREEN, RED)}"}
            if sum(values) < -VISIBLE * scale:
                look["class"] = "less"
        lines = []
        for gain in (tokens[at] for at in group):
            lines.append(gain["text"])
            for side, logprob in {"alone": gain["base"], "after the question": gain["prompt"]}.items():
                if logprob is not None:
                    lines.append(f"{side}: p {_number(math.exp(logprob))}, log p {_number(logprob)}")
            if gain["gain"] is not None:
                lines.append(f"change {_number(gain['gain'], signed=True)}")
        looks.append({**look, "title": "\n".join(lines)})
    marked = _marked(explanation["context"], tokens, groups, looks, numbered=len(explanation["confidences"]) > 1)
    return {**marked, "legend": _legend(-scale, scale, GREEN, RED)}


def _confidences(explanation: Row, logarithmic: bool) -> Iterator[Row]:
    """The parts of each confidence: question, context and end tokens, then all, without and with the question: how
    many tokens, and their mean probability or sum of log-probabilities.
    """

    def row(name: str, tokens: Sequence[Row], gain: float | None) -> Row:
        sides = []
        for side in ("base", "prompt") if tokens else ():
            values = [token[side] for token in tokens if token[side] is not None]
            measure = (sum(values) if logarithmic else _mean(map(math.exp, values))) if values else None
            sides.append((len(values), "–" if measure is None else _number(measure)))
        return {"name": name, "sides": sides, "gain": gain}

    pieces = explanation["confidences"]
    for confidence in pieces:
        tokens = [gain for gain in explanation["gains"] if gain["piece"] == confidence["piece"]]
        where = f"piece {confidence['piece'] + 1}: " if len(pieces) > 1 else ""
        for part, name in {"question": "question tokens", "context": "context tokens", "end": "end token"}.items():
            if some := [gain for gain in tokens if gain["part"] == part]:
                yield row(f"{where}{name}", some, None)
        yield row(f"{where}confidence", tokens, confidence["gain"])


def _groups(tokens: Sequence[Row]) -> list[list[int]]:
    """Tokens in reading order, those that share characters together: a character may be several byte-level tokens."""
    if any(token["start"] is None for token in tokens):
        return [[at] for at in range(len(tokens))]
    groups: list[list[int]] = []
    end = -1
    for at in sorted(range(len(tokens)), key=lambda at: (tokens[at]["start"], tokens[at]["end"])):
        if groups and tokens[at]["start"] < end:
            groups[-1].append(at)
        else:
            groups.append([at])
        end = max(end, tokens[at]["end"])
    return groups


def _text(context: str, tokens: Sequence[Row], group: Sequence[int]) -> str:
    if tokens[group[0]]["start"] is None:
        return str(tokens[group[0]]["text"])
    return context[min(tokens[at]["start"] for at in group) : max(tokens[at]["end"] for at in group)]


def _marked(
    context: str, tokens: Sequence[Row], groups: Sequence[Sequence[int]], looks: Sequence[Row], *, numbered: bool
) -> Row:
    """The context in marks, each with the text before it, and its number where a piece begins if there are several."""
    located = all(token["start"] is not None for token in tokens)
    cursor, piece, marks = 0, None, []
    for group, look in zip(groups, looks, strict=True):
        first = tokens[group[0]]
        before = context[cursor : first["start"]] if located else " "
        if located:
            cursor = max(tokens[at]["end"] for at in group)
        begins = numbered and first["piece"] not in (None, piece)
        piece = first["piece"] if begins else piece
        number = first["piece"] + 1 if begins else None
        marks.append({"before": before, "piece": number, "look": look, "text": _text(context, tokens, group)})
    return {"marks": marks, "rest": context[cursor:] if located else ""}


def _label(tokens: Sequence[Row], at: int) -> str:
    """The token's text, after ## if it continues the word before it."""
    text, before = tokens[at]["text"], tokens[at - 1] if at else None
    inside = before is not None and before["end"] is not None and before["end"] == tokens[at]["start"]
    return f"##{text}" if inside and before and (before["text"][-1:] + text[:1]).isalnum() and text else text


def _legend(least: float, scale: float, positive: str, negative: str) -> Row:
    low = -scale if least < 0 else 0.0
    return {"low": low, "high": scale, "ends": ",".join([negative] * (low < 0) + [GROUND, positive])}


def _shade(value: float, scale: float, positive: str, negative: str) -> str:
    fraction, end = min(1.0, abs(value) / scale), positive if value >= 0 else negative
    return f"color-mix(in srgb,{end} {100 * fraction:.1f}%,{GROUND})"


def _number(value: float, *, signed: bool = False) -> str:
    digits = ".3f" if abs(value) >= 0.01 or value == 0 else ".2g"
    return format(value, f"{'+' if signed else ''}{digits}").replace("-", "\N{MINUS SIGN}")


def _mean(values: Iterable[float]) -> float:
    numbers = list(values)
    return sum(numbers) / len(numbers)
