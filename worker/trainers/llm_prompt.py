"""A text as a question, the labels as its possible answers, and the places where the answers part.

A label is a sequence of tokens with an end token after it, so that "good" and "good enough" are two answers.
All answers together are a tree. The chance of a label is the product, over the forks on its way, of the chance of
its branch among the branches there: it says what the model would answer if it could say nothing but a label, and
the chances of all labels sum to 1 whatever their lengths. Where no answer parts from another nothing is asked.
"""

from __future__ import annotations

from typing import Any, Callable, Dict, List, NamedTuple, Optional, Sequence, Tuple

from ..failures import TrainerError, quoted
from .hf_batches import TOKENISE_AT_ONCE, Encoded, readable

MOST_NAMED = 60             # labels that the question lists
LEAST_ROOM = 8              # tokens of a text that must fit
GAP = "\u241e"              # stands for the text while the question is rendered

Prefix = Tuple[int, ...]


class Fork(NamedTuple):
    """After ``prefix`` the answers part: ``branches`` are (token, labels that go on with it)."""

    prefix: Prefix
    branches: Tuple[Tuple[int, Tuple[int, ...]], ...]


class Answers:
    """The labels' token sequences. ``ways`` are the beginnings of answers that between them pass every fork.

    TrainerError when two labels are the same tokens.
    """

    def __init__(self, labels: Sequence[str], sequences: Sequence[Sequence[int]]) -> None:
        self.sequences = [tuple(s) for s in sequences]
        met: Dict[Prefix, str] = {}
        for label, sequence in zip(labels, self.sequences):
            if sequence in met:
                raise TrainerError("the labels %s and %s are the same to this model's tokenizer"
                                   % (quoted(met[sequence]), quoted(label)),
                                   "another model, or other names for the labels")
            met[sequence] = label
        tree: Dict[Prefix, Dict[int, List[int]]] = {}
        for k, sequence in enumerate(self.sequences):
            for at, token in enumerate(sequence):
                tree.setdefault(sequence[:at], {}).setdefault(token, []).append(k)
        forks = [Fork(prefix, tuple((t, tuple(ks)) for t, ks in sorted(branches.items())))
                 for prefix, branches in tree.items() if len(branches) > 1]
        ends = [f.prefix for f in forks
                if not any(len(o.prefix) > len(f.prefix) and o.prefix[:len(f.prefix)] == f.prefix for o in forks)]
        self.ways: List[Tuple[Prefix, List[Fork]]] = []
        left = sorted(forks)
        for end in sorted(ends):
            passed = [f for f in left if end[:len(f.prefix)] == f.prefix]
            left = [f for f in left if f not in passed]
            self.ways.append((end, passed))
        self.longest_way = max((len(end) for end, _ in self.ways), default=0)
        self.longest = max(map(len, self.sequences))


class Question(NamedTuple):
    """The tokens before and after a text, and those of each label with the end token."""

    before: Tuple[int, ...]
    after: Tuple[int, ...]
    answers: Tuple[Tuple[int, ...], ...]

    def room(self, max_length: int, models: bool = False) -> int:
        """Tokens of a text that fit. TrainerError when they are too few; ``models``: the model takes no more."""
        taken = len(self.before) + len(self.after) + max(map(len, self.answers))
        if max_length - taken < LEAST_ROOM:
            what = "the %d tokens that the model takes leave" if models else "max_length %d leaves"
            raise TrainerError((what + " no room for the texts: the question and the longest label take %d tokens")
                               % (max_length, taken),
                               "give a shorter instruction, or %s" % ("take another model" if models
                                                                      else "raise max_length"))
        return max_length - taken


def make_question(tokenizer: Any, name: str, labels: Sequence[str], instruction: Optional[str]) -> Question:
    """The question that a model is asked of each text, in its own chat format when it has one."""
    if instruction is None:
        instruction = 'Which label of "%s" fits the text?' % name
        if len(labels) <= MOST_NAMED:
            instruction += " Answer with one of: %s." % ", ".join(labels)
    chat = getattr(tokenizer, "chat_template", None)
    if chat:
        content = "%s\n\n%s" % (instruction, GAP)
        whole = tokenizer.apply_chat_template([{"role": "user", "content": content}], tokenize=False,
                                              add_generation_prompt=True, enable_thinking=False)
        before, _, after = whole.rpartition(GAP)
        first = list(_ids(tokenizer, before))
    else:
        before, after = "%s\n\nText: " % instruction, "\nLabel:"
        first = list(_ids(tokenizer, before))
        sample = tokenizer("a")["input_ids"]
        if tokenizer.bos_token_id is not None and sample[:1] == [tokenizer.bos_token_id]:
            first.insert(0, tokenizer.bos_token_id)
    end = tokenizer.eos_token_id
    closing = (end,) if end is not None else _ids(tokenizer, "\n")[-1:]
    answers = tuple(_ids(tokenizer, label if chat else " " + label) + closing for label in labels)
    return Question(tuple(first), _ids(tokenizer, after), answers)


def _ids(tokenizer: Any, text: str) -> Tuple[int, ...]:
    return tuple(tokenizer(readable(text), add_special_tokens=False)["input_ids"])


def read_texts(tokenizer: Any, texts: Sequence[str], room: int, check: Callable[[], None]) -> List[List[int]]:
    """The texts' own tokens, at most ``room`` of each."""
    found: List[List[int]] = []
    for start in range(0, len(texts), TOKENISE_AT_ONCE):
        check()
        some = [readable(text) for text in texts[start:start + TOKENISE_AT_ONCE]]
        portion = tokenizer(some, add_special_tokens=False, truncation=True, max_length=room, padding=False)
        found.extend(list(ids) for ids in portion["input_ids"])
    return found


def rows(question: Question, texts: Sequence[Sequence[int]], endings: Sequence[Sequence[int]]) -> Encoded:
    """A row for each text: the question about it, and an ending."""
    return Encoded([{"input_ids": [*question.before, *text, *question.after, *ending]}
                    for text, ending in zip(texts, endings)])
