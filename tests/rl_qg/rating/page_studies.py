"""Studies and guests for tests of the pages."""

import json
import re
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from html import unescape
from pathlib import Path
from typing import Any

from starlette.testclient import TestClient

from rl_qg.rating.pages.server import create_app
from rl_qg.rating.plan_files import Hit, Item, StudyPlan, TaskPassage, plan_texts
from rl_qg.rating.protocol import Protocol, load_protocol
from rl_qg.rating.study.store import Store, open_store
from rl_qg.settings.web import RateServeSettings

PROTOCOLS = Path(__file__).parents[3] / "configs" / "protocol"
ADMIN_TOKEN = "owner-0123456789abcdef"
CONTEXT = (
    "The mill at Alden burned in 1204. Anna Weaver built it again with stones from the old bridge, and her sons "
    "ground corn there for forty years. In 1340 Thomas Miller paid for a new bridge, which still stands."
)
QUESTIONS = (
    *("Who built the mill again?", "What did Anna Weaver build?", "When did the mill burn?", "Who paid for a bridge?"),
    *("Where did the sons grind corn?", "Who again the mill stones?"),
)


def protocol(name: str = "qascore", **changes: Any) -> Protocol:
    """A protocol of the package, with some fields changed."""
    return replace(load_protocol(name, PROTOCOLS), **changes)


def page_plan(
    protocol: Protocol,
    *,
    items: int = 3,
    tasks: int = 2,
    raters: int = 1,
    language: str = "en",
    context: str = CONTEXT,
    answer: str = "Anna Weaver",
    questions: Sequence[str] = QUESTIONS,
) -> StudyPlan:
    """Tasks of one passage whose answer is marked."""
    start = context.index(answer) if answer else None
    hits = []
    for number in range(1, tasks + 1):
        shown = [
            Item(
                position=at,
                kind="ordinary" if at == 1 or at % 3 else "degraded",
                passage=0,
                question=questions[(at - 1) % len(questions)],
                answer=answer,
                answer_start=start,
                systems=("planted-system-b",) if at % 2 else ("planted-system-a", "planted-system-b"),
                item="item-1",
                original=None if at == 1 or at % 3 else 1,
            )
            for at in range(1, items + 1)
        ]
        hits.append(Hit(f"h{number:04d}", language, (TaskPassage(f"hash{number}", "", context),), tuple(shown)))
    settings = {"study": "mill", "seed": 1, "language": language, "raters_per_hit": raters, "retention_days": 90}
    settings |= {"cost": {"pay_per_hit": 2.5, "currency": "USD"}}
    record = json.loads(plan_texts(settings, protocol, hits)["plan.json"])
    return StudyPlan(protocol, tuple(hits), record)


def settings_of(**given: Any) -> RateServeSettings:
    """Settings without limits of rates."""
    settings = RateServeSettings(
        **{"volunteers": True, "rate": None, "address_rate": None, "address_tasks": None} | given
    )
    settings.check()
    return settings


class RaterClient:
    """Somebody with a browser that keeps cookies and follows redirects; `page` is the last answer."""

    def __init__(self, store: Store, settings: RateServeSettings | None = None, application: Any = None) -> None:
        self.store = store
        application = application or create_app(store, settings or settings_of(), ADMIN_TOKEN)
        self.client = TestClient(application, base_url="http://localhost", raise_server_exceptions=False)
        self.page: Any = None

    def get(self, path: str, **headers: str) -> "RaterClient":
        self.page = self.client.get(path, headers=headers)
        return self

    def post(self, path: str = "", headers: dict[str, str] | None = None, **fields: Any) -> "RaterClient":
        """Send a form, with the secret of the last page unless it is given."""
        named = {name.replace("_", "-"): value for name, value in fields.items()}
        named = {"csrf": self.csrf} | named if self.csrf else named
        self.page = self.client.post(path or self.path, data=named, headers=headers or {})
        return self

    def begin(self, path: str = "") -> "RaterClient":
        """Up to the first item: by a link, or as a volunteer."""
        if path:
            self.get(path)
        else:
            self.get("/").post("/begin")
        self.post("/consent", answer="agree", version="1").post("/instructions")
        while self.path.startswith("/practice/"):
            self.rate().get("/next")
        return self

    def rate(self, value: int | None = None) -> "RaterClient":
        """Rate the item that is shown: sliders at `value`, choices at their first."""
        fields: dict[str, Any] = {"action": "next"}
        for number, criterion in enumerate(self.store.plan.protocol.criteria, 1):
            if criterion.anchors:
                fields[f"value_{number}"] = criterion.anchors[0][0]
            else:
                fields |= {f"value_{number}": 60 + number if value is None else value, f"set_{number}": 1}
        return self.post(**fields)

    def rate_all(self) -> "RaterClient":
        while re.fullmatch(r"/task/a\d+/\d+", self.path):
            self.rate()
        return self

    @property
    def path(self) -> str:
        return str(self.page.url.path)

    @property
    def status(self) -> int:
        return int(self.page.status_code)

    @property
    def csrf(self) -> str:
        found = re.search(r'name="csrf" value="(\w+)"', self.page.text) if self.page is not None else None
        return found[1] if found else ""

    @property
    def text(self) -> str:
        """What a person reads."""
        without = re.sub(r"<(style|script|title).*?</\1>|<[^>]+>", " ", self.page.text, flags=re.S)
        return unescape(re.sub(r"\s+", " ", without))

    @property
    def title(self) -> str:
        return unescape(re.search(r"<title>(.*?)</title>", self.page.text)[1])  # type: ignore[index]

    @property
    def code(self) -> str:
        found = re.search(r'id="code">([^<]+)<', self.page.text)
        return found[1] if found else ""


def study(folder: Path, plan: StudyPlan | None = None, clock: Callable[[], float] = time.time) -> Store:
    """A new study in a folder."""
    return open_store(str(folder / "study.db"), plan or page_plan(protocol()), clock)
