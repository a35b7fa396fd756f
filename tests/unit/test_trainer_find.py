"""What the hub answers, in words; which commit a directory is; whether its files are whole."""

import json

import pytest
from potato_training.worker.trainers import hf_find


@pytest.mark.parametrize(("kind", "says", "hint"), [
    ("RevisionNotFoundError", "revision: model 'org/m' has no 'v 1' on huggingface.co", "branches, tags or commits"),
    ("RepositoryNotFoundError", "model 'org/m' is neither a directory here nor a model of huggingface.co", "HF_TOKEN"),
    ("GatedRepoError", "model 'org/m' is gated", "HF_TOKEN"),
    ("LocalEntryNotFoundError", "model 'org/m' at revision 'v 1': config.json is not in /cache, and huggingface.co "
     "cannot be reached from here", "hf download org/m --revision 'v 1'"),
])
def test_an_answer_of_the_hub_is_said_with_what_to_do(kind, says, hint):
    found = hf_find._explain_hub(type(kind, (Exception,), {})("https://huggingface.co/?token=x"), "org/m", "v 1",
                                 "/cache", offline=False)
    assert found.message.startswith(says) and hint in found.hint
    assert "token=x" not in found.message + found.hint


@pytest.mark.parametrize(("directory", "commit"), [
    ("/c/hub/models--org--m/snapshots/" + "a1" * 20, "a1" * 20), ("/c/snapshots/" + "a1" * 20 + "/", "a1" * 20),
    ("/c/" + "a1" * 20, None), ("/c/snapshots/main", None), ("/c/snapshots", None)])
def test_the_commit_of_a_directory_of_the_cache(directory, commit):
    assert hf_find.commit(directory) == commit


def tensors(offsets=((0, 4), (4, 12)), tail=12):
    head = json.dumps({"__metadata__": {"format": "pt"},
                       **{f"w{n}": {"dtype": "F32", "shape": [1], "data_offsets": o} for n, o in enumerate(offsets)}})
    return len(head).to_bytes(8, "little") + head.encode() + bytes(tail)


@pytest.mark.parametrize(("data", "whole"), [
    (tensors(), True), (tensors(()), False), (tensors((), 0), True), (tensors()[:-1], False), (tensors() + b"x", False),
    (tensors()[:40], False), (b"", False), (b"\0" * 8, False), (bytes([255] * 8) + b"{}", False),
    (b"\x02" + bytes(7) + b"[]", False), (b"\x06" + bytes(7) + b'{"a":1', False)])
def test_a_file_of_weights_that_broke_off_is_found(tmp_path, data, whole):
    (tmp_path / "w").write_bytes(data)
    assert hf_find._intact(str(tmp_path / "w")) is whole
