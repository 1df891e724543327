"""What is said of models that cannot be used, and which are not refused."""

import io
import resource
import urllib.error
from email.message import Message

import pytest
import torch
from huggingface_hub import constants
from torch import nn

from rewards import QRelScore, hub
from rewards.errors import UnreachableModel
from rewards.pretrained import ModelFault, check_tokenizer, check_weights, explained
from tests.tiny_models import piece_tokenizer, tiny_bart


def test_the_errors_of_libraries_become_one_line_whatever_their_type():
    for error in (OSError("no file\nmore"), Exception("broken."), KeyError("a"), TypeError("")):
        with pytest.raises(ModelFault) as caught, explained("."):
            raise error
        assert "\n" not in str(caught.value) and str(caught.value)
        assert caught.value.unreachable == isinstance(error, OSError)
    with pytest.raises(torch.OutOfMemoryError), explained("."):
        raise torch.OutOfMemoryError


def test_a_process_that_can_open_no_more_files_lacks_no_file():
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, limits[1]))
    try:
        with pytest.raises(ModelFault, match="too many files and connections are open"), explained("."):
            raise OSError("no such file")
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)


def test_a_hub_that_does_not_answer_is_asked_once_and_its_models_are_refused_in_one_line(monkeypatch):
    asked = []

    def refuse(url, timeout):
        asked.append(url)
        raise urllib.error.URLError("unreachable")

    monkeypatch.setattr(hub, "_answered", False)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr("urllib.request.urlopen", refuse)
    monkeypatch.setenv("HF_ENDPOINT", "https://127.0.0.1:9")
    with pytest.raises(UnreachableModel, match=r"of 'no/such-model'.*offline, name a local folder$") as caught:
        QRelScore("no/such-model")
    assert asked == ["https://127.0.0.1:9"] and "\n" not in str(caught.value)
    assert caught.value.__cause__ is None and caught.value.__suppress_context__  # no page of tracebacks
    assert not constants.HF_HUB_OFFLINE  # asked again for the next model: the network may be back


@pytest.mark.parametrize("status", [200, 404, 503])
def test_a_hub_that_answers_is_not_asked_again_and_the_library_goes_on(monkeypatch, status):
    asked = []

    def answer(url, timeout):
        asked.append(url)
        if status != 200:
            raise urllib.error.HTTPError(url, status, "", Message(), None)
        return io.BytesIO()

    monkeypatch.setattr(hub, "_answered", False)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr("urllib.request.urlopen", answer)
    for _ in range(2):
        with explained("no/such-model"):
            assert not constants.HF_HUB_OFFLINE
    assert len(asked) == 1
    with explained("."):
        assert not constants.HF_HUB_OFFLINE  # a local folder
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    with explained("no/such-model"):
        assert constants.HF_HUB_OFFLINE  # as the user has decided


def test_weights_must_be_finite_numbers_where_they_are_here():
    model = tiny_bart(40)
    check_weights(model, None)
    check_weights(model.half(), None)
    check_weights(nn.Linear(2, 2, device="meta"), None)  # those of another process
    for value in (torch.nan, torch.inf, -torch.inf):
        spoiled = tiny_bart(40)
        with torch.no_grad():
            spoiled.model.decoder.layers[0].fc1.weight[3, 2] = value
        with pytest.raises(ModelFault, match=r"weights model.decoder.layers.0.fc1.weight are not all finite"):
            check_weights(spoiled, None)
    large = nn.Linear(4, 4)
    nn.init.constant_(large.weight, 3e38)  # the sum is infinite, the weights are not
    check_weights(large, None)


def test_a_tokenizer_has_words_and_no_more_than_the_model():
    tokenizer = piece_tokenizer(["a", "b", "c"])
    check_tokenizer(tokenizer)
    with pytest.raises(ModelFault, match="it has no tokenizer"):
        check_tokenizer(piece_tokenizer(["[UNK]"][:0] or ["[PAD]"]))
    check_weights(tiny_bart(len(tokenizer)), tokenizer)
    with pytest.raises(ModelFault, match=f"its tokenizer has {len(tokenizer)} tokens, and the model"):
        check_weights(tiny_bart(len(tokenizer) - 1), tokenizer)
    tokenizer.add_tokens(["<hl>"])
    check_weights(tiny_bart(len(tokenizer) - 1), tokenizer, grows=True)
    with pytest.raises(ModelFault, match="they do not belong together"):
        check_weights(tiny_bart(len(tokenizer) - 1), tokenizer)
