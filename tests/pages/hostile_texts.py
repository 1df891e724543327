"""Texts that break pages: markup that would run, words without end, both directions of writing, long names."""

ATTACK = "window.attacked = 1"
SCRIPT = f"<script>{ATTACK}; alert(1)</script>"
IMAGE = f'"><img src=x onerror="{ATTACK}">'
ATTRIBUTE = f"' autofocus onfocus='{ATTACK}' x='"
ENDINGS = "</style></title></textarea></svg>--> ]]> {{ 7 * 7 }} {% raw %} $title ${title} $\\frac$ &amp; &#60;b>"
RIGHT_TO_LEFT = "מי כתב את המחזה? من كتب المسرحية؟"
EMOJI = "👩‍🚀🏳️‍🌈🔥"
LONG_WORD = "unbroken" * 40
MARKS = "\u202etfel\u202d \u2067\u2066\u200f\u061c"  # they turn the direction of what follows, and are not closed

MARKUP = " ".join((SCRIPT, IMAGE, ATTRIBUTE, ENDINGS))
TEXT = " ".join(("Who wrote it?", MARKUP, RIGHT_TO_LEFT, EMOJI, LONG_WORD))
PASSAGE = " ".join((MARKUP, "The play was written in London. " * 12, RIGHT_TO_LEFT, EMOJI, LONG_WORD))
NAME = ("$\\frac$" + SCRIPT + IMAGE + ATTRIBUTE + RIGHT_TO_LEFT + EMOJI + LONG_WORD)[:300]
SIGNATURE = f"metric|{SCRIPT}|{IMAGE}|version:{LONG_WORD}"


def file_name(number: int) -> str:
    """A name that a folder can have: no slash, and at most 255 bytes. Those of two numbers differ."""
    return (f"{number}{IMAGE}{ATTRIBUTE}{RIGHT_TO_LEFT}".replace("/", "") + EMOJI + "n" * 60)[:160]
