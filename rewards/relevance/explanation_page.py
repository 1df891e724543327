"""The page of an explanation: one self-contained HTML file. All text in it is escaped in this module."""

import json
import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from pathlib import Path
from string import Template
from typing import Any

Row = Mapping[str, Any]

BLUE, ORANGE, GREEN, RED = (f"var(--{name})" for name in ("blue", "orange", "green", "red"))
"""Ends of the scales, as the style sheet of the page has them for light and for dark screens."""

GROUND = "var(--card)"
"""The colour of 0."""

VISIBLE = 0.05
"""Fraction of a scale from which on a colour can be distinguished from that of 0."""

LOCAL_NOTE = (
    "One row for each question token, one column for each encoder layer. The word in a cell is the context token that "
    "contributes most, number and colour are the contribution (weight × cosine; point at a cell for both). The last "
    "row is each layer’s value; lrm is their {}."
)
MATCHED_NOTE = (
    "What each context token adds to lrm, over all layers and question tokens. "
    '<span class="interactive">Point at a question token to see its best matches alone, on a scale of their own; '
    "click to keep them.</span> Crossed-out tokens are not compared."
)
GAIN_NOTE = (
    "How {} of each context token changes when the question precedes the context: green is likelier, red and "
    "dotted is less likely (point at a token for the numbers). Dashed tokens have no counterpart: a text begins with "
    "other tokens alone than after other text."
)


def page(explanation: Row) -> str:
    """Return the page of an explanation, given as `rewards.relevance.explanation.Explanation.to_dict` returns it."""
    template = Template(Path(__file__).with_name("explanation.html").read_text(encoding="utf-8"))
    return template.substitute(
        title=escape(f"QRelScore of “{explanation['question']:.80}”"),
        question=escape(explanation["question"]),
        context=escape(explanation["context"]),
        cards="\n".join(_cards(explanation)),
        notes=_notes(explanation["notes"]),
        signature=escape(explanation["signature"]),
        **_heat_map(explanation),
        **_matched_text(explanation),
        **_gain_text(explanation),
    )


def _cards(explanation: Row) -> Iterable[str]:
    choices, parts = explanation["choices"], explanation["measured"]
    for part, description in {
        "score": "harmonic mean of lrm and grg",
        "lrm": f"local: matches in {_count(len(explanation['layers']), 'encoder layer')}",
        "grg": f"global: {choices['gain']} gain of the decoder’s confidence",
    }.items():
        if choices["baselines"] != "none" and part in parts:
            description += f"; {_number(parts[part])} before rescaling"
        yield (
            f'<div class="panel"><p class="name">{part}</p><p class="figure">{_number(explanation[part])}</p>'
            f'<p class="small">{escape(description)}</p></div>'
        )


def _notes(notes: Sequence[str]) -> str:
    items = "".join(f"<li>{escape(note)}</li>" for note in notes)
    return f'<ul class="notes">{items}</ul>' if items else ""


def _heat_map(explanation: Row) -> dict[str, str]:
    """Question tokens by layers: colour and number are the contribution, the word is the matched context token."""
    layers, power = explanation["layers"], explanation["choices"]["power"]
    cells: dict[tuple[int, int], list[Row]] = defaultdict(list)
    for layer in layers:
        for match in layer["matches"]:
            cells[match["question_token"], layer["number"]].append(match)
    values = {key: _mean(match["contribution"] for match in matches) for key, matches in cells.items()}
    scale = max(map(abs, values.values())) or 1.0

    def cell(word: int, number: int) -> str:
        matches, question_tokens, context_tokens = (
            cells[word, number],
            explanation["question_tokens"],
            explanation["context_tokens"],
        )
        best = max(matches, key=lambda match: match["contribution"])
        title = "\n".join(
            [f"layer {number}", *(_match_text(match, question_tokens, context_tokens) for match in matches)]
        )
        style = f"background:{_shade(values[word, number], scale, BLUE, ORANGE)}"
        label, value = escape(_label(context_tokens, best["context_token"])), _number(values[word, number])
        return f'<td style="{style}" title="{escape(title)}"><b>{label}</b><span>{value}</span></td>'

    numbers = [layer["number"] for layer in layers]
    rows = ""
    for word, token in enumerate(explanation["question_tokens"]):
        if token["left_out"]:
            line = f'<td class="out" colspan="{len(layers) + 1}">not compared: {escape(token["left_out"])}</td>'
        else:
            mean = _mean(values[word, number] for number in numbers)
            line = "".join(cell(word, number) for number in numbers) + f'<td class="whole">{_number(mean)}</td>'
        rows += f'<tr><th scope="row">{escape(_label(explanation["question_tokens"], word))}</th>{line}</tr>'
    head = "".join(f'<th scope="col">{number}</th>' for number in numbers)
    foot = "".join(
        f"<td>{_number(value)}</td>"
        for value in [*(layer["value"] for layer in layers), explanation["measured"]["lrm"]]
    )
    return {
        "heat": (
            f'<table class="heat"><thead><tr><th>layer</th>{head}<th scope="col">mean</th></tr></thead>'
            f'<tbody>{rows}</tbody><tfoot><tr><th scope="row">layer’s value</th>{foot}</tr></tfoot></table>'
        ),
        "heat_legend": _legend(min(values.values()), scale, "contribution", BLUE, ORANGE),
        "local_note": LOCAL_NOTE.format("mean" if power == "1" else f"power mean (exponent {power})"),
    }


def _match_text(match: Row, question_tokens: Sequence[Row], context_tokens: Sequence[Row]) -> str:
    pair = f"{_label(question_tokens, match['question_token'])} → {_label(context_tokens, match['context_token'])}"
    numbers = ", ".join(f"{key} {_number(match[key])}" for key in ("weight", "cosine", "contribution"))
    return f"{pair}: {numbers}"


def _matched_text(explanation: Row) -> dict[str, str]:
    """The context, coloured by what each token adds to lrm, and for the script what each question token adds."""
    question_tokens, context_tokens, matched = (
        explanation["question_tokens"],
        explanation["context_tokens"],
        explanation["matched"],
    )
    pieces = {token["piece"] for token in context_tokens} - {None}
    contributions: dict[int, dict[int, float]] = defaultdict(lambda: defaultdict(float))
    chosen: dict[int, Counter[int]] = defaultdict(Counter)
    for layer in explanation["layers"]:
        for match in layer["matches"]:
            word, to = match["question_token"], match["context_token"]
            contributions[word][to] += match["weight"] * match["cosine"]
            chosen[to][word] += 1
    groups = _groups(context_tokens)
    scale = max((abs(sum(matched[at] for at in group)) for group in groups), default=0.0) or 1.0
    marks = []
    for group in groups:
        value = sum(matched[at] for at in group)
        tokens = " ".join(map(str, group))
        text = _text(explanation["context"], context_tokens, group)
        if reason := context_tokens[group[0]]["left_out"]:
            marks.append(f'<span class="out" title="not compared: {escape(reason)}">{escape(text)}</span>')
            continue
        by = sum((chosen[at] for at in group), Counter[int]())
        title = f"{text}: {_number(value)} of lrm"
        title += "".join(
            f"\n{_label(question_tokens, word)} in {_count(times, 'layer')}" for word, times in by.most_common()
        )
        style = f"background:{_shade(value, scale, BLUE, ORANGE)}"
        marks.append(f'<span data-tokens="{tokens}" style="{style}" title="{escape(title)}">{escape(text)}</span>')
    return {
        "matched": _assembled(explanation["context"], context_tokens, groups, marks, numbered=len(pieces) > 1),
        "matched_legend": _legend(min(matched), scale, "added to lrm", BLUE, ORANGE),
        "matches": json.dumps(contributions),
        "words": "\n".join(
            f'<span class="out">{escape(token["text"])}</span>'
            if token["left_out"]
            else f'<button type="button" data-word="{at}" aria-pressed="false">'
            f"{escape(_label(question_tokens, at))}</button>"
            for at, token in enumerate(question_tokens)
        ),
        "matched_note": MATCHED_NOTE,
    }


def _gain_text(explanation: Row) -> dict[str, str]:
    """The context, coloured by each token's gain, and the table of the confidences."""
    logarithmic = explanation["choices"]["confidence"] == "log_likelihood"
    tokens = [gain for gain in explanation["gains"] if gain["part"] == "context"]
    groups = _groups(tokens)
    summed = [_sum_of(tokens[at]["gain"] for at in group) for group in groups]
    scale = max((abs(value) for value in summed if value is not None), default=0.0) or 1.0
    marks = []
    for group, value in zip(groups, summed, strict=True):
        text = _text(explanation["context"], tokens, group)
        title = "\n".join(_gain_text_of(tokens[at]) for at in group)
        look = 'class="alone"'
        if value is not None:
            less = ' class="less"' if value < -VISIBLE * scale else ""
            look = f'style="background:{_shade(value, scale, GREEN, RED)}"{less}'
        marks.append(f'<span {look} title="{escape(title)}">{escape(text)}</span>')
    what = "log p" if logarithmic else "p"
    return {
        "gains": _assembled(
            explanation["context"], tokens, groups, marks, numbered=len(explanation["confidences"]) > 1
        ),
        "gain_legend": _legend(-scale, scale, f"change of {what}", GREEN, RED),
        "gain_note": GAIN_NOTE.format(what),
        "confidences": _confidence_table(explanation, logarithmic),
    }


def _gain_text_of(gain: Row) -> str:
    """One token's numbers, for the hover text."""
    sides = {"alone": gain["base"], "after the question": gain["prompt"]}
    lines = [
        f"{side}: p {_number(math.exp(logprob))}, log p {_number(logprob)}"
        for side, logprob in sides.items()
        if logprob is not None
    ]
    change = [] if gain["gain"] is None else [f"change {_number(gain['gain'], signed=True)}"]
    return "\n".join([gain["text"], *lines, *change])


def _confidence_table(explanation: Row, logarithmic: bool) -> str:
    """The parts of each confidence: question, context and end tokens, without and with the question."""
    pieces = explanation["confidences"]
    lines = []
    for confidence in pieces:
        tokens = [gain for gain in explanation["gains"] if gain["piece"] == confidence["piece"]]
        where = f"piece {confidence['piece'] + 1}: " if len(pieces) > 1 else ""
        for part, name in {"question": "question tokens", "context": "context tokens", "end": "end token"}.items():
            sides = _sides([gain for gain in tokens if gain["part"] == part], logarithmic)
            if sides:
                lines.append(f"<tr><td>{where}{name}</td>{sides}<td></td></tr>")
        whole = f"{_sides(tokens, logarithmic)}<td>{_number(confidence['gain'], signed=True)}</td>"
        lines.append(f'<tr class="total"><td>{where}confidence</td>{whole}</tr>')
    side = f"<th>tokens</th><th>{'sum of log p' if logarithmic else 'mean p'}</th>"
    head = (
        '<tr><td></td><th colspan="2">alone</th><th colspan="2">after the question</th><td></td></tr>'
        f"<tr><td></td>{side}{side}<th>gain</th></tr>"
    )
    table = f'<table class="numbers"><thead>{head}</thead><tbody>{"".join(lines)}</tbody></table>'
    panel = '<div class="scroll" role="region" tabindex="0" aria-label="Confidences of the decoder">'
    return f"{panel}{table}</div>" if lines else ""


def _sides(tokens: Sequence[Row], logarithmic: bool) -> str:
    """Without and with the question: how many tokens, and their mean probability or sum of log-probabilities."""
    cells = ""
    for side in ("base", "prompt"):
        values = [token[side] for token in tokens if token[side] is not None]
        measure = "–" if not values else _number(sum(values) if logarithmic else _mean(map(math.exp, values)))
        cells += f"<td>{len(values)}</td><td>{measure}</td>"
    return cells if tokens else ""


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


def _assembled(
    context: str, tokens: Sequence[Row], groups: Sequence[Sequence[int]], marks: Sequence[str], *, numbered: bool
) -> str:
    """The context with its marks, and a number where a piece begins if there are several."""
    located = all(token["start"] is not None for token in tokens)
    cursor, piece = 0, None
    parts = []
    for group, mark in zip(groups, marks, strict=True):
        first = tokens[group[0]]
        if located:
            parts.append(escape(context[cursor : first["start"]]))
            cursor = max(tokens[at]["end"] for at in group)
        else:
            parts.append(" ")
        if numbered and first["piece"] not in (None, piece):
            piece = first["piece"]
            parts.append(f'<sup title="piece {piece + 1}">{piece + 1}</sup>')
        parts.append(mark)
    return "".join([*parts, escape(context[cursor:]) if located else ""])


def _label(tokens: Sequence[Row], at: int) -> str:
    """The token's text, after ## if it continues the word before it."""
    text, before = tokens[at]["text"], tokens[at - 1] if at else None
    inside = before is not None and before["end"] is not None and before["end"] == tokens[at]["start"]
    return f"##{text}" if inside and before and (before["text"][-1:] + text[:1]).isalnum() and text else text


def _legend(least: float, scale: float, what: str, positive: str, negative: str) -> str:
    """A bar from 0 to the scale's end, or from its negative end where a value is below 0."""
    low = -scale if least < 0 else 0.0
    ends = ",".join([negative] * (low < 0) + [GROUND, positive])
    bar = f'<span class="bar" style="background:linear-gradient(to right,{ends})"></span>'
    return f'<div class="legend"><span class="scale">{what}: {_number(low)} {bar} {_number(scale)}</span></div>'


def _shade(value: float, scale: float, positive: str, negative: str) -> str:
    """The colour of a value: that of the page at 0, one end of its scale at ``scale`` and beyond."""
    fraction, end = min(1.0, abs(value) / scale), positive if value >= 0 else negative
    return f"color-mix(in srgb,{end} {100 * fraction:.1f}%,{GROUND})"


def _number(value: float, *, signed: bool = False) -> str:
    """Three decimals, or two digits where that would be 0."""
    digits = ".3f" if abs(value) >= 0.01 or value == 0 else ".2g"
    return format(value, f"{'+' if signed else ''}{digits}").replace("-", "\N{MINUS SIGN}")


def _count(number: int, what: str) -> str:
    return f"{number} {what}" + ("s" if number != 1 else "")


def _mean(values: Iterable[float]) -> float:
    numbers = list(values)
    return sum(numbers) / len(numbers)


def _sum_of(values: Iterable[float | None]) -> float | None:
    """The sum of the values that are not None; None if there are none."""
    numbers = [value for value in values if value is not None]
    return sum(numbers) if numbers else None
