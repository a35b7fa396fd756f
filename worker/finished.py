"""What a job that is started again in its directory need not do again: the schemes whose models are saved already."""

from __future__ import annotations

import json
import os
import shutil
from typing import TYPE_CHECKING, Any, Mapping, Optional

from . import files, protocol

if TYPE_CHECKING:
    from .spec import Spec

DONE_FILE = "done.json"


class Finished:
    """The schemes of a run that are trained. ``directories`` are the models', below the job directory."""

    def __init__(self, spec: Spec, directories: Mapping[str, str], params: Mapping[str, Any],
                 bundle: Optional[str]) -> None:
        self.workdir = spec.workdir
        self.directories = directories
        self.mark = {"run": spec.run_id, "trainer": spec.trainer, "params": dict(params), "seed": spec.seed,
                     "bundle": bundle, "earlier": spec.earlier}
        self._known = {name: self._look(name) for name in directories}

    def scratch(self, name: str) -> str:
        """Where a trainer may keep what it needs to go on after it was interrupted."""
        plain = os.path.basename(self.directories[name])
        return os.path.join(self.workdir, protocol.CHECKPOINTS_DIR, plain)

    def version(self, name: str) -> Optional[str]:
        """The version of the scheme's model when it is saved whole, else None."""
        return self._known[name]

    def _look(self, name: str) -> Optional[str]:
        try:
            with open(os.path.join(self.scratch(name), DONE_FILE), encoding="utf-8") as f:
                done = json.load(f)
            version = done.pop("version")
            whole = done == self.mark and files.digest_of_directory(self._directory(name)) == version
        except (OSError, ValueError, KeyError, AttributeError, TypeError):
            return None
        return str(version) if whole else None

    def _directory(self, name: str) -> str:
        return os.path.join(self.workdir, *self.directories[name].split("/"))

    def note(self, name: str, version: str) -> None:
        """The scheme's model is saved: its checkpoints go, and the next start will not train it again."""
        scratch = self.scratch(name)
        shutil.rmtree(scratch, ignore_errors=True)
        os.makedirs(scratch)
        files.write_json(os.path.join(scratch, DONE_FILE), dict(self.mark, version=version))

    def sweep(self) -> None:
        """Removes the model directories that are not whole, and those of nothing in this run."""
        root = os.path.join(self.workdir, protocol.ARTIFACTS_DIR)
        keep = {self._directory(name) for name, version in self._known.items() if version is not None}
        for entry in os.listdir(root) if os.path.isdir(root) else ():
            path = os.path.join(root, entry)
            if path not in keep:
                shutil.rmtree(path, ignore_errors=True)

    def forget(self) -> None:
        """The run is over: nothing of this is needed any more."""
        shutil.rmtree(os.path.join(self.workdir, protocol.CHECKPOINTS_DIR), ignore_errors=True)
