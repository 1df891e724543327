"""`rl-qg rate forget`: what a study knows of a rater is deleted, or of all of them once the study's time is over."""

from rl_qg.rating.study.export_stage import utc
from rl_qg.rating.study.store import open_store
from rl_qg.rating.study.store_records import Forgotten, NotAllowed
from rl_qg.runtime.errors import InputError
from rl_qg.settings.rating import RateForgetSettings


def forget_rater(settings: RateForgetSettings) -> None:
    """Delete one rater's data, or all raters' where they are `expired`, and print how much that was.

    Raises:
        InputError: no such study or rater, both or neither are named, or the study's time is not over.
    """
    if bool(settings.rater) == settings.expired:
        raise InputError("rater: name one, as rater=r0007, or say expired=true for all of a study that is over")
    store = open_store(settings.study)
    try:
        if not settings.expired:
            forgotten = store.forget(settings.rater, settings.ratings)
        elif store.now() < store.retention_until:
            raise InputError(
                f"expired: {store.place} keeps its raters until {utc(store.retention_until)}, as its plan says"
            )
        else:
            forgotten = store.forget_all(settings.ratings)
    except NotAllowed:
        raise InputError(f"rater={settings.rater}: the study has no such rater; exports name them, as r0007") from None
    finally:
        store.close()
    print(_sentence(forgotten))


def _sentence(done: Forgotten) -> str:
    deleted = ", ".join(
        f"{count} {name}"
        for name, count in (
            ("identities", done.identities),
            ("sessions", done.sessions),
            ("texts of feedback", done.feedback),
            ("events", done.events),
            ("ratings", done.ratings),
        )
    )
    kept = f"; {done.kept_ratings} ratings stay, under a pseudonym that leads nowhere" if done.kept_ratings else ""
    return f"raters forgotten: {done.raters}. Deleted: {deleted}{kept}"
