"""A study to try (`rl-qg rate demo`): questions of the quickstart's two generators and of people, on this machine."""

from dataclasses import replace
from pathlib import Path

from rl_qg.rating.pages.server import serve_study
from rl_qg.rating.plan_files import PLAN
from rl_qg.rating.planning.plan import write_plan
from rl_qg.rating.protocol import Protocol
from rl_qg.settings.web import RateDemoSettings, RatePlanSettings, RateServeSettings

PACKAGED = Path(__file__).with_name("demo_questions.jsonl")


def run_demo(settings: RateDemoSettings, protocol: Protocol) -> None:
    """Plan the study, unless it stands already, serve it until Ctrl-C, and say how to analyse it."""
    folder = Path(settings.output).expanduser()
    plan, study = folder / "plan", folder / "study.db"
    if not (plan / PLAN).exists():
        write_plan(
            RatePlanSettings(questions=str(PACKAGED), output=str(plan), study="demo", pay_per_hour=0.0), protocol
        )
    print("Open the address below, rate the questions, and end with Ctrl-C.")
    options = RateServeSettings(plan=str(plan), study=str(study), port=settings.port, volunteers=True)
    serve_study(replace(options, panel_parameter="", tasks_per_rater=None))
    print(
        "Which questions do you prefer? The answer is in analysis.html after\n"
        f"  rl-qg rate export study={study} output={folder / 'ratings'}\n"
        f"  rl-qg rate analyse ratings={folder / 'ratings'} output={folder / 'analysis'}"
    )
