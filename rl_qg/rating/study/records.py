"""What the store of a study returns, and the errors that it raises."""

from collections.abc import Mapping
from dataclasses import dataclass

from rl_qg.rating.plan_files import Hit

OPEN, SUBMITTED, SURPLUS, EXPIRED, RETURNED = "open", "submitted", "surplus", "expired", "returned"
STATES = (OPEN, SUBMITTED, SURPLUS, EXPIRED, RETURNED)  # of an assignment
FINISHED = (SUBMITTED, SURPLUS)
COMPLETED, NO_CONSENT, SCREENED_OUT, FULL = "completed", "no_consent", "screened_out", "full"  # of codes
OTHER_BROWSER, CROWDED = "other_browser", "crowded"


class NotYours(PermissionError):
    """The assignment is another rater's, or there is none of this name. Which of the two is not said."""


class NotAllowed(PermissionError):
    """The rater has not agreed, has failed the practice, or has been forgotten, and may not rate."""


class Suspicious(PermissionError):
    """The rater is in another browser, or the network address has too many tasks; arguments: which, and the rater."""


class Closed(PermissionError):
    """The assignment was submitted or given back; its ratings stay as they are."""


class StoreFailed(OSError):
    """The database is full, busy or out of reach. Nothing of the call was kept, and it may be made again."""


@dataclass(frozen=True)
class Rater:
    """One rater, without an identity."""

    id: str  # r0001
    panel: str
    consent_version: str | None
    declined: bool
    practice: str | None  # passed or failed
    language: str | None
    forgotten: bool = False

    @property
    def state(self) -> str:
        if self.forgotten:
            return "forgotten"
        if self.declined:
            return "declined"
        if self.practice == "failed":
            return "screened_out"
        return "consented" if self.consent_version is not None else "arrived"


@dataclass(frozen=True)
class Session:
    """A browser that has shown a valid token."""

    rater: str
    csrf: str  # what each form must send back


@dataclass(frozen=True)
class Assignment:
    """One task that one rater has; times in seconds since 1970."""

    id: str  # a00001
    hit: Hit
    rater: str
    state: str
    started: float
    submitted: float | None
    shown: Mapping[int, float]  # position: when it was first shown

    @property
    def is_finished(self) -> bool:
        return self.state in FINISHED
