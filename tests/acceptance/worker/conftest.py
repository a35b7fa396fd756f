"""A job directory made by hand, and the real worker run in it."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
TRAINERS = ROOT / "tests" / "fixtures" / "trainers"

SCHEMAS = {
    "sentiment": {"name": "sentiment", "annotation_type": "radio", "kind": "nominal", "labels": ["pos", "neu", "neg"]},
    "stars": {"name": "stars", "annotation_type": "likert", "kind": "ordinal", "labels": ["1", "2", "3", "4", "5"]},
    "topics": {"name": "topics", "annotation_type": "multiselect", "kind": "multilabel",
               "labels": ["film", "meal", "room"]},
}
WORDS = {"neg": ["awful", "poor", "dire", "bad"], "neu": ["plain", "usual"], "pos": ["great", "lovely", "superb"]}


def make_rows(prefix, count, seed=1, schemas=SCHEMAS):
    """Items that a model can learn from: the words give the sentiment and the stars away, the nouns the topics."""
    rng = random.Random(seed)
    rows = []
    for n in range(count):
        mood = ("neg", "neu", "pos")[n % 3]
        nouns = rng.sample(["film", "meal", "room"], rng.choice([1, 1, 2]))
        words = rng.sample(WORDS[mood], 2)
        filler = " ".join(rng.choice(["it", "was", "and", "then", "also"]) for _ in range(rng.choice([0, 2, 9])))
        text = f"the {' and '.join(nouns)} was {words[0]} and {words[1]} {filler}".strip()
        labels = {"sentiment": mood, "stars": {"neg": "1", "neu": "3", "pos": "5"}[mood], "topics": sorted(nouns)}
        rows.append({"id": f"{prefix}{n}", "text": text, "labels": {k: v for k, v in labels.items() if k in schemas}})
    return rows


class Job:
    """A job directory with a bundle and a spec; ``start`` and ``run`` start the worker in it."""

    def __init__(self, directory, wait_until, warm=None):
        self.dir = Path(directory)
        self.wait_until = wait_until
        self.warm = warm
        self.process = None

    def write(self, trainer, schemas=("sentiment",), train=60, val=12, test=12, unlabeled=10, splits=None, **spec):
        """Counts of made-up rows, or with ``splits`` the rows themselves; ``schemas`` are names or whole schemas."""
        schemas = [SCHEMAS[s] if isinstance(s, str) else s for s in schemas]
        names = {s["name"]: s for s in schemas}
        if splits is None:
            splits = {"train": make_rows("t", train, 1, names), "val": make_rows("v", val, 2, names),
                      "test": make_rows("s", test, 3, names),
                      "unlabeled": [dict(row, labels={}) for row in make_rows("u", unlabeled, 4, names)]}
        bundle = self.dir / "bundle"
        bundle.mkdir(parents=True, exist_ok=True)
        entries = {}
        for name in ("train", "val", "test", "unlabeled"):
            rows = splits.get(name, [])
            lines = [row if isinstance(row, str) else json.dumps(row, ensure_ascii=False) for row in rows]
            (bundle / f"{name}.jsonl").write_text("".join(line + "\n" for line in lines), encoding="utf-8")
            entries[name] = {"path": f"{name}.jsonl", "n": len(rows), "format": "jsonl"}
        manifest = {"v": 1, "digest": "0" * 64, "modality": "text", "schemas": schemas, "splits": entries,
                    "labels": {s["name"]: s["labels"] for s in schemas}, "media_dir": None}
        (bundle / "manifest.json").write_text(json.dumps(manifest), encoding="utf-8")
        self.spec = {"v": 1, "run_id": "run-1", "attempt": 1, "trainer": trainer, "schemas": schemas,
                     "bundle_dir": "bundle", "workdir": ".", "params": {}, "seed": 0, "include_unlabeled": True,
                     "limits": {"max_ram_mb": None, "num_threads": 1, "device": "cpu"}, "grace_seconds": 20,
                     "on_disconnect": "stop", "orphan": {"stdin": False, "lease_s": None}}
        self.spec.update(spec)
        (self.dir / "spec.json").write_text(json.dumps(self.spec), encoding="utf-8")
        (self.dir / "control").write_text("run\n")
        return self

    def start(self, python=sys.executable, code=None, env=None, **options):
        """Starts the worker as an agent does: own session, a pipe as stdin, append-only files."""
        path = [str(TRAINERS)] if code is None else [str(code), str(TRAINERS)]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path), **(env or {})}
        for name in ("events.jsonl", "stderr.log"):
            (self.dir / name).touch()
        arguments = ["--spec", "spec.json", "--exit-code-file", "exit_code"]
        with open(self.dir / "events.jsonl", "ab") as out, open(self.dir / "stderr.log", "ab") as err:
            how = {"cwd": self.dir, "env": environment, "stdout": out, "stderr": err, **options}
            if self.warm:
                assert python == sys.executable and code is None
                self.process = self.warm.start("potato_training.worker", arguments, **how)
            else:
                self.process = subprocess.Popen([str(python), "-m", "potato_training.worker", *arguments],
                                                stdin=subprocess.PIPE, start_new_session=True, **how)
        return self

    def run(self, **options):
        """Runs the worker to its end; -> the exit code."""
        return self.start(**options).end()

    def end(self, patience=240):
        code = self.process.wait(patience)
        self.process.stdin.close()
        return code

    def until(self, what, patience=240):
        """Waits until an event whose line contains ``what`` is there."""
        def there():
            found = any(what in line for line in self.lines())
            assert found or self.process.poll() is None, f"the worker ended: {self.lines()[-1:]} {self.stderr[-2000:]}"
            return found
        self.wait_until(there, f"an event with {what!r}", patience)

    def control(self, word):
        (self.dir / "control.tmp").write_text(word + "\n")
        (self.dir / "control.tmp").replace(self.dir / "control")

    def lines(self):
        return (self.dir / "events.jsonl").read_text(encoding="utf-8").splitlines()

    def events(self, kind=None):
        events = [json.loads(line) for line in self.lines()]
        return [e for e in events if kind is None or e["event"] == kind]

    def logs(self, level):
        return [e["msg"] for e in self.events("log") if e["level"] == level]

    @property
    def last(self):
        return self.events()[-1]

    @property
    def stderr(self):
        return (self.dir / "stderr.log").read_text(encoding="utf-8", errors="replace")

    @property
    def exit_code(self):
        """What stands in the exit code file, or None."""
        path = self.dir / "exit_code"
        return int(path.read_text()) if path.exists() else None

    def predictions(self):
        text = (self.dir / "predictions.jsonl").read_text(encoding="utf-8")
        return [json.loads(line) for line in text.splitlines()]

    def artifacts(self):
        root = self.dir / "artifacts"
        return {str(p.relative_to(root)): p.read_bytes() for p in sorted(root.rglob("*")) if p.is_file()}


@pytest.fixture
def make_job(tmp_path, wait_until):
    """``make_job("test-quick", schemas=..., params=..., ...)``: a Job; what it started is gone after the test."""
    with _jobs(tmp_path, wait_until) as make:
        yield make


@pytest.fixture
def quick_job(tmp_path, wait_until, warm):
    """The same in a process that has its libraries already: for all that is not about how a process starts."""
    with _jobs(tmp_path, wait_until, warm) as make:
        yield make


@pytest.fixture(scope="module")
def make_jobs(tmp_path_factory, wait_until):
    """As make_job, for jobs that several tests look at."""
    with _jobs(tmp_path_factory.mktemp("jobs"), wait_until) as make:
        yield make


@contextlib.contextmanager
def _jobs(folder, *how):
    jobs = []

    def make(trainer, name="job", **options):
        job = Job(folder / name, *how).write(trainer, **options)
        jobs.append(job)
        return job

    yield make
    for job in jobs:
        if job.process is not None and job.process.poll() is None:
            os.killpg(job.process.pid, signal.SIGKILL)
            job.process.wait(60)


@pytest.fixture(scope="session")
def warm_pythons():
    """``warm_pythons(libraries)``: a Python that has imported them, one for all who ask; see tests/fixtures/warm."""
    spec = importlib.util.spec_from_file_location("warm", ROOT / "tests" / "fixtures" / "warm" / "warm.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    made = {}

    def get(libraries):
        if libraries not in made:
            made[libraries] = module.Warm(*libraries)
        return made[libraries]

    yield get
    for one in made.values():
        one.close()


@pytest.fixture(scope="module")
def warm(request, warm_pythons):
    """A Python with what the jobs of this test file import: its ``LIBRARIES``, those of the tiny models otherwise."""
    return warm_pythons(getattr(request.module, "LIBRARIES", TEXT_LIBRARIES))


@pytest.fixture(scope="session")
def text_python(warm_pythons, tmp_path_factory):
    """``text_python(script, *arguments, told="")``: what a script that needs the libraries of the tiny models printed.

    In a process without this package, which a script can look at.
    """
    def run(script, *arguments, told=""):
        folder = tmp_path_factory.mktemp("script")
        (folder / "script.py").write_text(script)
        with (folder / "out").open("wb") as out, (folder / "err").open("wb") as err:
            process = warm_pythons(TEXT_LIBRARIES).start("script", arguments, cwd=folder, env=os.environ, stdout=out,
                                                         stderr=err)
        with process.stdin:
            process.stdin.write(told.encode())
        code = process.wait(240)
        assert code == 0, (folder / "err").read_text(errors="replace")[-3000:]
        return (folder / "out").read_text()

    return run


@pytest.fixture
def conforms():
    """``conforms(name, path=None, **params)``: the conformance test as a person runs it; it must find nothing."""
    def run(name, path=None, **params):
        argv = [sys.executable, "-m", "potato_training.worker.trainers.conformance", name]
        argv += [f"--param={key}={json.dumps(value)}" for key, value in params.items()]
        done = subprocess.run(argv, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL,
                              env={**os.environ, "OMP_NUM_THREADS": "1",
                                   **({"PYTHONPATH": str(path)} if path else {})})
        assert done.returncode == 0, done.stdout + done.stderr[-3000:]
        assert f"{name} conforms" in done.stdout and "cancelled while it trains" in done.stdout
    return run


@pytest.fixture
def rows():
    return make_rows


@pytest.fixture
def code_tree(tmp_path):
    """The code as it travels: potato_training/__init__.py and worker/, nothing else."""
    package = tmp_path / "code" / "potato_training"
    package.mkdir(parents=True)
    (package / "__init__.py").write_bytes((ROOT / "potato_training" / "__init__.py").read_bytes())
    (package / "worker").symlink_to(ROOT / "worker")
    return package.parent


# --- tiny models --------------------------------------------------------------------------------

#: What the jobs with them import; the names below a library are what it imports on first use.
TEXT_LIBRARIES = ("torch", "transformers", "peft", "transformers.models.bert.modeling_bert",
                  "transformers.models.distilbert.modeling_distilbert", "transformers.models.gpt2.modeling_gpt2",
                  "transformers.models.llama.modeling_llama")

MODEL_WORDS = "the film meal room was and it then also awful poor dire bad plain usual great lovely superb"

MAKE = """
import os, sys
out, words = sys.argv[1], sorted(set(sys.argv[2].split()))
import torch
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast
import transformers as t
torch.manual_seed(0)

def bert_tokenizer(vocab_size_only=False):
    vocab = {w: n for n, w in enumerate(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"] + words)}
    raw = Tokenizer(models.WordPiece(vocab, unk_token="[UNK]"))
    raw.normalizer = normalizers.BertNormalizer()
    raw.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    marks = [("[CLS]", 2), ("[SEP]", 3)]
    raw.post_processor = processors.TemplateProcessing(single="[CLS] $A [SEP]", special_tokens=marks)
    return PreTrainedTokenizerFast(tokenizer_object=raw, pad_token="[PAD]", unk_token="[UNK]", cls_token="[CLS]",
                                   sep_token="[SEP]", mask_token="[MASK]", model_max_length=64), len(vocab)

tok, n = bert_tokenizer()
small = dict(hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64, initializer_range=0.3)
t.BertForMaskedLM(t.BertConfig(vocab_size=n, max_position_embeddings=64, **small)).save_pretrained(out + "/bert")
tok.save_pretrained(out + "/bert")
t.DistilBertModel(t.DistilBertConfig(vocab_size=n, dim=32, n_layers=2, n_heads=2, hidden_dim=64, initializer_range=0.3,
                                     max_position_embeddings=64)).save_pretrained(out + "/distilbert")
tok.save_pretrained(out + "/distilbert")
vocab = {w: n for n, w in enumerate(["<|end|>", "<unk>"] + words)}
raw = Tokenizer(models.WordLevel(vocab, unk_token="<unk>"))
raw.pre_tokenizer = pre_tokenizers.Whitespace()
gpt = PreTrainedTokenizerFast(tokenizer_object=raw, eos_token="<|end|>", unk_token="<unk>")
t.GPT2LMHeadModel(t.GPT2Config(vocab_size=len(vocab), n_positions=64, n_embd=32, n_layer=2, n_head=2, bos_token_id=0,
                               eos_token_id=0, initializer_range=0.3)).save_pretrained(out + "/gpt2")
gpt.save_pretrained(out + "/gpt2")
"""


@pytest.fixture(scope="session")
def models(tmp_path_factory, text_python):
    """{bert, distilbert, gpt2}: directories of tiny models without a classification head."""
    out = tmp_path_factory.mktemp("models")
    text_python(MAKE, out, MODEL_WORDS)
    return {name: str(out / name) for name in ("bert", "distilbert", "gpt2")}
