"""Forms of verbs: base forms, and a verb put into the form of another."""

import pytest

from rl_qg.text.english import base_form, in_the_form_of

FORMS = """
use uses used using; stop stops stopped stopping; visit visits visited visiting
control controls controlled controlling
study studies studied studying; pass passes passed passing; agree agrees agreed agreeing; write writes wrote writing
die dies died dying; create creates created creating; change changes changed changing; occur occurs occurred occurring
call calls called calling; determine determines determined determining; go goes went going; win wins won winning
seed seeds seeded seeding; heed heeds heeded heeding; weed weeds weeded weeding; need needs needed needing
free frees freed freeing; guarantee guarantees guaranteed guaranteeing; exceed exceeds exceeded exceeding
develop develops developed developing; store stores stored storing; watch watches watched watching
"""


@pytest.mark.parametrize("forms", [line.split() for line in FORMS.replace("\n", ";").split(";") if line.split()])
def test_four_forms_of_a_verb(forms: list[str]) -> None:
    base, third, past, continuous = forms
    if base != "die":  # dying, as lying and tying, is not undone
        assert base_form(continuous) == base
    assert [base_form(form) for form in (base, third, past, past.upper())] == [base] * 4
    for like, form in (("rain", base), ("rains", third), ("rained", past), ("raining", continuous)):
        assert in_the_form_of(base, like, participle=False) == form


def test_what_ends_like_a_past_form_is_left() -> None:
    for word in ("speed", "indeed", "deed", "heed", "breed", "feed"):
        assert base_form(word) == word


def test_participles() -> None:
    assert in_the_form_of("begin", "ended", participle=True) == "begun"
    assert in_the_form_of("begin", "ended", participle=False) == "began"
    assert in_the_form_of("lose", "won", participle=True) == "lost"
