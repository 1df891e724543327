"""The study to try: its questions are those of both generators and of people, about the same answers."""

from rl_qg.rating.demo import PACKAGED
from rl_qg.rating.planning.questions import read_questions


def test_the_packaged_questions() -> None:
    study = read_questions(str(PACKAGED))
    assert study.systems == ["ce", "scst", "human"] and not study.left_out
    assert len(study.subjects) == 42 and all(len(one.questions) == 3 for one in study.subjects)
