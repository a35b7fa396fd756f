"""What the trainers on transformers share: how a training begins, who takes part in it, and how it ends."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Optional, Sequence, Tuple

from ..metrics import ENOUGH
from . import hf_find, hf_setup, hf_team
from .base import Trainer

if TYPE_CHECKING:
    from ..bundle import Example
    from .hf_checkpoint import Checkpoints

MOST_UNKNOWN = 0.2      # of the tokens; a model for the texts' language has next to none


class FineTuner(Trainer):
    """A trainer that goes on with a model from the hub or a directory. A subclass writes ``tune``."""

    auto_epochs: Tuple[int, int]    #: least and most epochs when none are asked for
    crew = hf_team.Solo()           # in the processes that rank 0 starts it is a Team already
    commit: Optional[str] = None    #: of the hub, which the model came from

    def fit(self, train: Sequence[Example], val: Sequence[Example]) -> None:
        """Trains on the train items; the val items choose the best epoch when there are at least five."""
        try:
            directory = self._begin(train, val)
            held = list(val) if len(val) >= ENOUGH else []
            self.tune(directory, train, held)
        finally:
            self.crew.close()

    def tune(self, directory: str, train: Sequence[Example], held: Sequence[Example]) -> None:
        """Loads the model of ``directory`` and trains it; ``held`` is empty when there are too few val items."""
        raise NotImplementedError

    def _begin(self, train: Sequence[Example], val: Sequence[Example]) -> str:
        """The model's directory, with the other processes on their way and the seed set."""
        task, params, run = self.task, self.task.params, self.run
        hf_setup.quiet(params["model"])
        run.step("loading %s" % params["model"])
        directory = self.crew.directory or hf_find.find(params["model"], params.get("revision"))
        run.check()
        self.commit = hf_find.commit(directory)
        if self.commit:
            run.log("%s is at commit %s" % (params["model"], self.commit))
        if self.crew.directory is None:
            self.crew = hf_team.gather(self, directory, train, val)
        hf_setup.seed(task.seed, run.device)
        return directory

    def _ready(self, train: Sequence[Example], held: Sequence[Example], precision: str) -> int:
        """All is loaded: says what follows, and waits for the other processes. -> the number of epochs."""
        run = self.run
        if not held:
            run.log("fewer than %d val items have a label: the last epoch is kept, without early stopping" % ENOUGH)
        epochs = hf_setup.epochs(len(train), self.task.params, self.auto_epochs)
        run.log("training for %d epochs in %s on %s" % (epochs, precision, run.device))
        run.step("training")
        self.crew.join(run, self.task.seed)
        return epochs

    def _warn_of_unknown(self, tokenizer: Any, texts: Sequence[Sequence[int]]) -> None:
        """Says so when the tokenizer has no tokens for much of the texts (each a list of ids)."""
        unknown, special = tokenizer.unk_token_id, set(tokenizer.all_special_ids)
        if unknown is None:
            return
        met = sum(ids.count(unknown) for ids in texts)
        all_of_them = met + sum(n not in special for ids in texts for n in ids)
        if met > MOST_UNKNOWN * all_of_them:
            self.run.warn("the tokenizer of %s does not know %d %% of the words in the train items: the model learns "
                          "little from them; take one for their language"
                          % (self.task.params["model"], 100 * met // all_of_them))

    def _checkpoints(self, directory: str, train: Sequence[Example],
                     held: Sequence[Example]) -> Optional[Checkpoints]:
        return hf_setup.checkpoints(self.task, directory, train, held, self.run)

    def _collator(self, tokenizer: Any) -> Any:
        """Batches of this tokenizer for the run's device; a GPU is quicker with lengths that 8 divides."""
        from .hf_batches import Collator

        return Collator(tokenizer, self.run.device, 8 if self.run.device.startswith("cuda") else 1)


