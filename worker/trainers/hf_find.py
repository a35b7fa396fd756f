"""Where a model is: a directory here, or the hub's snapshot in the cache, fetched when there is a network."""

from __future__ import annotations

import contextlib
import fnmatch
import json
import os
import re
import shlex
from typing import Iterator, Optional

from ..failures import TrainerError

#: The files of a model repository that are needed; weights in pickles are never fetched.
TOKENIZER = ("tokenizer*", "vocab*", "merges.txt", "*.model")
WANTED = ("config.json", *TOKENIZER, "special_tokens_map.json", "added_tokens.json", "model.safetensors",
          "model.safetensors.index.json", "model-*.safetensors")


def find(name: str, revision: Optional[str] = None) -> str:
    """The local directory of a model: the one named, or the hub's snapshot of that name in the cache.

    ``revision`` is a branch, tag or commit of the hub's; None is the newest. TrainerError naming the
    file that was wanted and how to bring it when it is not there and the network is not either. Whatever is loaded
    afterwards is loaded from that directory alone.
    """
    if os.path.isdir(name):
        if revision:
            raise TrainerError("revision: model '%s' is a directory here, and only models of huggingface.co have "
                               "revisions" % name, "leave revision out")
        return _whole(os.path.abspath(name), name)
    if name.startswith(("/", "./", "../", "~")) or name.count("/") > 1:
        raise TrainerError("model: there is no directory %s on this machine" % name,
                           "give a directory of the training machine, or a name on huggingface.co")
    os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")
    from huggingface_hub import constants, snapshot_download

    try:
        directory = snapshot_download(name, revision=revision, allow_patterns=list(WANTED))
    except Exception as error:
        raise _explain_hub(error, name, revision, constants.HF_HUB_CACHE, bool(constants.HF_HUB_OFFLINE)) from error
    return _whole(directory, name)


def commit(directory: str) -> Optional[str]:
    """The hub's commit that a directory of its cache holds; None for any other directory."""
    parent, name = os.path.split(os.path.abspath(directory))
    return name if os.path.basename(parent) == "snapshots" and re.fullmatch("[0-9a-f]{40}", name) else None


def _explain_hub(error: Exception, name: str, revision: Optional[str], cache: str, offline: bool) -> TrainerError:
    kind = type(error).__name__
    wanted = name + (" --revision %s" % shlex.quote(revision) if revision else "")
    bring = ("fetch it where there is a network (hf download %s) and copy that cache here, with HF_HOME naming the "
             "place; or give a local directory as model" % wanted)
    if kind == "RevisionNotFoundError":
        return TrainerError("revision: model '%s' has no '%s' on huggingface.co" % (name, revision or "main"),
                            "give one of its branches, tags or commits")
    if kind in ("HFValidationError", "RepositoryNotFoundError"):
        return TrainerError("model '%s' is neither a directory here nor a model of huggingface.co" % name,
                            "mind the spelling; a private model needs HF_TOKEN (env_file keeps it secret)")
    if kind == "GatedRepoError":
        return TrainerError("model '%s' is gated: huggingface.co wants its terms accepted first" % name,
                            "accept them there, and set HF_TOKEN (env_file keeps it secret)")
    why = "HF_HUB_OFFLINE is set" if offline else "huggingface.co cannot be reached from here"
    which = "'%s' at revision '%s'" % (name, revision) if revision else "'%s'" % name
    return TrainerError("model %s: config.json is not in %s, and %s" % (which, cache, why), bring,
                        code="model_not_here")


def _whole(directory: str, name: str) -> str:
    """The directory, if it holds a configuration and safetensors weights."""
    have = os.listdir(directory)
    if "adapter_config.json" in have and "config.json" not in have:
        raise TrainerError("model '%s' is an adapter; give the model that it belongs to" % name)
    if "config.json" not in have:
        raise TrainerError("model '%s': config.json is not in %s" % (name, directory),
                           "the directory must hold a whole transformers model", code="model_not_here")
    index = os.path.join(directory, "model.safetensors.index.json")
    if os.path.exists(index):
        with open(index, encoding="utf-8") as f:
            wanted = sorted(set(json.load(f).get("weight_map", {}).values()))
    else:
        wanted = ["model.safetensors"]
    for file in wanted:
        if file not in have:
            pickled = [n for n in have if n.endswith((".bin", ".pt", ".h5", ".ckpt"))]
            hint = "bring the missing file, for example with hf download %s" % name
            if pickled:
                hint = "only %s is there; pickles are not loaded: save the model as safetensors" % pickled[0]
            raise TrainerError("model '%s': %s is not in %s" % (name, file, directory), hint, code="model_not_here")
        if not _intact(os.path.join(directory, file)):
            raise TrainerError("model '%s': %s in %s is damaged: it is not as long as its head says"
                               % (name, file, directory), "bring it again", code="model_not_here")
    if not any(fnmatch.fnmatch(file, pattern) for file in have for pattern in TOKENIZER):
        # transformers would make up a tokenizer that knows no word at all
        raise TrainerError("model '%s': the tokenizer's files (tokenizer.json and its like) are not in %s"
                           % (name, directory), "the directory must hold a whole transformers model",
                           code="model_not_here")
    return directory


def _intact(path: str) -> bool:
    """Whether a safetensors file is as long as its head says: what a broken copy mostly is not."""
    try:
        with open(path, "rb") as f:
            length = int.from_bytes(f.read(8), "little")
            size = os.fstat(f.fileno()).st_size
            if length > size:
                return False
            head = json.loads(f.read(length))
        return size == 8 + length + max((t["data_offsets"][1] for n, t in head.items() if n != "__metadata__"),
                                        default=0)
    except (ValueError, KeyError, TypeError, AttributeError):
        return False


@contextlib.contextmanager
def of_its_kind(directory: str, otherwise: str) -> Iterator[None]:
    """Around the loading of a model: TrainerError saying ``otherwise`` where transformers has it in no such form."""
    try:
        yield
    except ValueError as error:
        if "Unrecognized configuration class" not in str(error) and "does not recognize" not in str(error):
            raise
        raise TrainerError("the model in %s %s: %s"
                           % (directory, otherwise, str(error).splitlines()[0][:300])) from error
