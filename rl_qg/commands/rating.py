"""The commands of human evaluation: `rl-qg rate plan`, then `serve`, `export`, `analyse`."""

from rl_qg.commands.outputs import check_packages
from rl_qg.rating.protocol import load_protocol
from rl_qg.rating.study.export import forget_rater, print_status, write_export
from rl_qg.settings import Settings
from rl_qg.settings.yaml_files import CONFIGS

PROTOCOLS = CONFIGS / "protocol"
PACKAGES = ("starlette", "uvicorn", "python_multipart")


def rate_plan(settings: Settings) -> None:
    from rl_qg.rating.planning.plan import write_plan

    write_plan(settings.rate_plan, load_protocol(settings.rate_plan.protocol, PROTOCOLS))


def rate_serve(settings: Settings) -> None:
    """The web application, until SIGTERM (`rl_qg.rating.pages.server`)."""
    check_packages("rate serve", PACKAGES, "rate")
    from rl_qg.rating.pages.server import serve_study

    serve_study(settings.rate_serve)


def rate_status(settings: Settings) -> None:
    print_status(settings.rate_status)


def rate_export(settings: Settings) -> None:
    write_export(settings.rate_export)


def rate_forget(settings: Settings) -> None:
    forget_rater(settings.rate_forget)


def rate_analyse(settings: Settings) -> None:
    from rl_qg.rating.analysis.analyse import write_analysis

    write_analysis(settings.rate_analyse)


def rate_demo(settings: Settings) -> None:
    check_packages("rate demo", PACKAGES, "rate")
    from rl_qg.rating.demo import run_demo

    run_demo(settings.rate_demo, load_protocol("demo", PROTOCOLS))
