"""The web application: a service behind its limits, for uvicorn or any other ASGI host."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI
from fastapi.middleware.cors import CORSMiddleware
from starlette.concurrency import run_in_threadpool

from rl_qg.serving.gate import Gate, RequestLog
from rl_qg.serving.lmqg_routes import lmqg_routes
from rl_qg.serving.page import page_routes
from rl_qg.serving.problems import add_problem_handlers
from rl_qg.serving.routes import asking_routes, operation_routes
from rl_qg.serving.service import AskingService
from rl_qg.settings.web import ServeSettings
from rl_qg.web.requests import APIKeys, read_keys

DESCRIPTION = "Questions and answers for texts. Errors are problem JSON (RFC 9457)."


def create_app(
    service: AskingService,
    settings: ServeSettings | None = None,
    *,
    keys: APIKeys | None = None,
    hosts: frozenset[str] | None = None,
) -> FastAPI:
    """The application of a service, which it starts and closes with itself (ASGI's lifespan). A host without lifespan,
    such as an application that mounts this one, calls `service.start()` and `service.close()`.

    `settings` are the limits, by default those of the service. Each request must have one of `keys`, by default those
    that the settings name (`read_keys`), if there are any, and one of `hosts` (`rl_qg.serving.gate.hosts_of`), if not
    None, as the name in its header `Host`.
    """
    settings = settings or service.settings
    keys = read_keys(settings.api_keys) if keys is None else keys

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        service.start()
        yield
        service.drain()
        await run_in_threadpool(service.close, service.seconds_left)

    # The pages that FastAPI makes of the description take their scripts from another host, so there are none.
    application = FastAPI(
        title="rl-qg", description=DESCRIPTION, version="1", lifespan=lifespan, docs_url=None, redoc_url=None
    )
    add_problem_handlers(application)
    application.include_router(asking_routes(service, settings))
    application.include_router(lmqg_routes(service, settings))
    application.include_router(operation_routes(service))
    application.include_router(page_routes(service, settings, asks_key=bool(keys)))
    # The last one added is the outermost.
    application.add_middleware(Gate, settings=settings, keys=keys, hosts=hosts)
    if settings.origins:
        application.add_middleware(
            CORSMiddleware,
            allow_origins=settings.origins,
            allow_methods=["GET", "POST"],
            allow_headers=["Authorization", "Content-Type", "X-API-Key", "X-Request-ID"],
            expose_headers=["Retry-After", "X-Request-ID"],
        )
    application.add_middleware(RequestLog, service=service, log_texts=settings.log_texts)
    return application
