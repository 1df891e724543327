"""The command that answers over HTTP."""

import logging

from rl_qg.commands.asking import load_generator
from rl_qg.commands.outputs import check_packages
from rl_qg.settings import Settings

PACKAGES = ("fastapi", "multipart", "prometheus_client", "uvicorn")
log = logging.getLogger(__name__)


def serve(settings: Settings) -> None:
    check_packages("serve", PACKAGES, "serve")
    import torch

    from rl_qg.asking.models import chosen_generator
    from rl_qg.runtime.processes import processes
    from rl_qg.scoring.metrics import rerank_options
    from rl_qg.serving.application import create_app
    from rl_qg.serving.gate import hosts_of
    from rl_qg.serving.server import run_server
    from rl_qg.serving.service import AskingService
    from rl_qg.web.requests import local_names, read_keys
    from rl_qg.web.server import address_of, listen

    options = settings.serve
    keys = read_keys(options.api_keys)
    if not local_names(options.host) and not keys:
        log.warning("host=%s: others can reach this server, and it asks for no key; set api_keys=FILE", options.host)
    rerank_options(options.rerank, settings, "serve.rerank")
    path = chosen_generator(options.model.path)
    state = processes(settings.training.use_cpu)
    torch.set_num_threads(options.threads)  # rows of several texts share batches only with one thread
    bound = listen(options.host, options.port)
    service = AskingService(lambda: load_generator(settings, "serve", path, state, cores=1), options)
    print(f"rl-qg serve: {path} at {address_of(bound)}", flush=True)
    run_server(create_app(service, options, keys=keys, hosts=hosts_of(options)), service, options, bound)
