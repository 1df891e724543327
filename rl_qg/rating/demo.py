"""A study to try (`rl-qg rate demo`): questions of the quickstart's two generators and of people, on this machine."""

import json
from pathlib import Path
from typing import Any

from rl_qg.rating.pages.server import serve_study
from rl_qg.rating.planning.plan import write_plan
from rl_qg.rating.planning.questions import HUMAN
from rl_qg.rating.protocol import Protocol
from rl_qg.runtime.errors import InputError
from rl_qg.runtime.files import read_json, write_text, writing
from rl_qg.settings.web import RateDemoSettings, RatePlanSettings, RateServeSettings

PACKAGED = Path(__file__).with_name("demo_questions.json")
_QUESTIONS = {"ce": "ce", "scst": "scst", HUMAN: "gold"}  # the field of a sample that has the question of each system
_TEXTS = ("id", "context", "answer", "answer_start")


def run_demo(settings: RateDemoSettings, protocol: Protocol) -> None:
    """Plan the study, unless it stands already, serve it until Ctrl-C, and say how to analyse it."""
    folder = Path(settings.output).expanduser()
    plan, study, questions = folder / "plan", folder / "study.db", folder / "questions.jsonl"
    samples = compared_questions(Path(settings.run).expanduser()) if settings.run else read_json(PACKAGED)
    lines = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in question_rows(samples))
    if questions.exists() and questions.read_text(encoding="utf-8") != lines:
        raise InputError(f"output={folder}: holds a study of other questions; choose another folder")
    if not (plan / "plan.json").exists():
        with writing(folder, other="folder"):
            write_text(questions, lines)
        planned = RatePlanSettings(questions=str(questions), output=str(plan), study="demo", pay_per_hour=0.0)
        write_plan(planned, protocol)
    print("Open the address below, rate the questions, and end with Ctrl-C.")
    options = RateServeSettings(
        plan=str(plan), study=str(study), port=settings.port, volunteers=True, panel_parameter="", tasks_per_rater=None
    )
    serve_study(options)
    print(
        "Which questions do you prefer? The answer is in analysis.html after\n"
        f"  rl-qg rate export study={study} output={folder / 'ratings'}\n"
        f"  rl-qg rate analyse ratings={folder / 'ratings'} output={folder / 'analysis'}"
    )


def compared_questions(run: Path) -> list[dict[str, Any]]:
    path = run / "evaluation.json"
    if not path.exists():
        raise InputError(f"run={run}: has no evaluation.json; give a finished run, as rl-qg pipeline makes it")
    wanted = (*_TEXTS, *_QUESTIONS.values())
    try:
        samples = read_json(path)["samples"]
        missing = [name for sample in samples for name in wanted if name not in sample] if samples else ["samples"]
    except (LookupError, TypeError):
        raise InputError(f"{path}: has no samples, as rl-qg pipeline writes them; give another run") from None
    if missing:
        raise InputError(f"{path}: its questions lack {missing[0]}; give a run with both stages (stages=both)")
    return [{name: sample[name] for name in wanted} for sample in samples]


def question_rows(samples: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [
        {name: sample[name] for name in _TEXTS} | {"system": system, "question": sample[field]}
        for sample in samples
        for system, field in _QUESTIONS.items()
    ]
