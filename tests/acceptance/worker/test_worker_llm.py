"""llm-lora with a causal model made on the spot."""

import json
import shutil
from importlib.util import find_spec

import pytest

pytestmark = pytest.mark.skipif(not (find_spec("torch") and find_spec("transformers") and find_spec("peft")),
                                reason="needs transformers and peft")

MAKE = """
import sys, torch, transformers as t
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
torch.manual_seed(0)
raw = Tokenizer(models.BPE())
raw.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
raw.decoder = decoders.ByteLevel()
raw.train_from_iterator([sys.argv[2]] * 50, trainers.BpeTrainer(vocab_size=500, special_tokens=["<pad>", "<s>", "</s>"],
                        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False))
tokenizer = t.PreTrainedTokenizerFast(tokenizer_object=raw, bos_token="<s>", eos_token="</s>")
config = t.LlamaConfig(vocab_size=len(tokenizer), hidden_size=32, intermediate_size=64, num_hidden_layers=2,
                       num_attention_heads=2, max_position_embeddings=256, initializer_range=0.3)
t.LlamaForCausalLM(config).save_pretrained(sys.argv[1])
tokenizer.save_pretrained(sys.argv[1])
"""
WORDS = ("the film meal room was and it then also awful poor dire bad plain usual great lovely superb Text : Label "
         "What mood ? ")

#: What the saved adapter says of each label, one text and one token at a time, with peft and transformers alone.
PLAINLY = """
import json, sys, torch
from peft import AutoPeftModelForCausalLM
from transformers import AutoTokenizer
saved = sys.argv[1]
model = AutoPeftModelForCausalLM.from_pretrained(saved + "/adapter", dtype=torch.float32).eval()
tokenizer = AutoTokenizer.from_pretrained(saved)
head = json.load(open(saved + "/head.json"))
answers = head["answers"]
out = []
for text in json.load(sys.stdin):
    asked = head["before"] + tokenizer(text, add_special_tokens=False)["input_ids"][:head["room"]] + head["after"]
    chances = {}
    for label, answer in zip(head["labels"], answers):
        chance = 1.0
        for at, token in enumerate(answer):
            allowed = sorted({a[at] for a in answers if len(a) > at and a[:at] == answer[:at]})
            with torch.no_grad():
                logits = model(input_ids=torch.tensor([asked + answer[:at]])).logits[0, -1]
            chance *= float(logits[allowed].softmax(0)[allowed.index(token)])
        chances[label] = chance
    out.append(chances)
assert not any(m == "potato_training" or m.startswith("potato_training.") for m in sys.modules)
json.dump(out, sys.stdout)
"""
#: Labels that begin alike, one of which is the beginning of another.
NAMES = {"pos": "good", "neu": "good enough", "neg": "goodbye"}


@pytest.fixture(scope="session")
def model(tmp_path_factory, text_python):
    out = tmp_path_factory.mktemp("causal")
    text_python(MAKE, out, WORDS)
    return str(out)


def params(model, **more):
    return {"model": model, "instruction": "What mood?", "epochs": 4, "learning_rate": 2e-2, "batch_size": 8,
            "max_length": 96, "early_stopping": 0, **more}


SCHEMA = {"name": "mood", "annotation_type": "radio", "kind": "nominal", "labels": list(NAMES.values())}


def splits(rows, **counts):
    return {split: [dict(row, labels={"mood": NAMES[row["labels"]["sentiment"]]}) for row in rows(split, n, seed)]
            for seed, (split, n) in enumerate(counts.items(), 1)}


def test_what_the_saved_adapter_says_in_a_process_without_this_package_is_what_was_predicted(
        quick_job, rows, model, text_python):
    job = quick_job("llm-lora", schemas=[SCHEMA], params=params(model), include_unlabeled=False,
                   splits=splits(rows, train=60, val=12, test=12))
    assert job.run() == 0, job.stderr[-3000:]
    assert job.last["metrics"]["mood"]["test"]["accuracy"] > 0.6
    texts = {row["id"]: row["text"] for row in splits(rows, train=60, val=12, test=12)["test"]}
    found = [row for row in job.predictions() if row["split"] == "test"]
    said = text_python(PLAINLY, job.dir / "artifacts" / "mood",
                       told=json.dumps([texts[row["instance_id"]] for row in found]))
    for row, chances in zip(found, json.loads(said), strict=True):
        assert sum(row["scores"].values()) == pytest.approx(1.0, abs=1e-4)
        assert {k: pytest.approx(v, abs=1e-4) for k, v in chances.items()} == row["scores"]
    adapter = job.dir / "artifacts" / "mood" / "adapter"
    assert json.loads((adapter / "adapter_config.json").read_text())["base_model_name_or_path"] == model
    assert not [p for p in (job.dir / "artifacts").rglob("*") if p.suffix in (".bin", ".pt", ".pkl", ".pickle")]


def test_a_killed_and_requeued_job_ends_in_the_same_adapter_under_any_hash_seed(make_job, quick_job, rows, model):
    """The quick jobs' process has a hash seed of its own."""
    asked = {"schemas": [SCHEMA], "params": params(model, epochs=2, checkpoint_minutes=0),
             "splits": splits(rows, train=40, val=10)}
    whole = quick_job("llm-lora", **asked)
    assert whole.run() == 0, whole.stderr[-3000:]
    job = make_job("llm-lora", name="again", **asked).start(env={"PYTHONHASHSEED": "2"})
    folder = job.dir / "checkpoints" / "mood"
    job.wait_until(lambda: any(folder.glob("step-*/COMPLETE")), "a checkpoint")
    job.process.kill()
    job.end()
    assert job.run(env={"SLURM_RESTART_COUNT": "1", "PYTHONHASHSEED": "3"}) == 0, job.stderr[-3000:]
    assert any(m.startswith("resumed from step ") for m in job.logs("info"))
    assert job.last["model_version"] == whole.last["model_version"]
    assert (job.dir / "predictions.jsonl").read_bytes() == (whole.dir / "predictions.jsonl").read_bytes()


def test_two_processes_learn_what_one_learns(quick_job, rows, model):
    """Without dropout, which each process would draw for itself; batches of seven, so that their shares differ."""
    found = []
    for processes in (1, 2):
        job = quick_job("llm-lora", name=f"of{processes}", schemas=[SCHEMA], splits=splits(rows, train=33, val=9),
                       params=params(model, epochs=2, batch_size=7, processes=processes, precision="fp32",
                                     learning_rate=5e-3, lora={"dropout": 0.0}))
        assert job.run() == 0, job.stderr[-3000:]
        assert any("2 processes train together" in m for m in job.logs("info")) is (processes == 2)
        found.append(job.predictions())
    for a, b in zip(*found, strict=True):
        assert a["instance_id"] == b["instance_id"]
        assert a["scores"] == {k: pytest.approx(v, abs=5e-3) for k, v in b["scores"].items()}


def test_odd_texts_and_several_schemes(quick_job, model):
    """Each scheme's model is loaded from its files; empty texts, long ones and other scripts are asked about."""
    odd = ["great " * 20000, "😀 טוב מאוד", "", "\ud83d half a pair", "好" * 300, "plain"]
    schemas = [dict(SCHEMA, name=name) for name in ("one", "two")]
    rows = [json.dumps({"id": f"{n}", "text": text, "labels": {s["name"]: SCHEMA["labels"][n % 3] for s in schemas}})
            for n, text in enumerate(odd)]
    job = quick_job("llm-lora", schemas=schemas, params=params(model, epochs=1), splits={"train": rows, "val": rows})
    assert job.run() == 0, job.stderr[-3000:]
    assert len(job.predictions()) == 2 * len(odd)


def test_a_keep_while_it_trains(quick_job, rows, model):
    job = quick_job("llm-lora", schemas=[SCHEMA], params=params(model, epochs=1000),
                   splits=splits(rows, train=40, val=10)).start()
    job.until('"phase":"fit"')
    job.control("keep")
    assert job.end() == 0, job.stderr[-3000:]
    assert job.last["kept"] is True and job.last["metrics"]["mood"]["val"]["n"] == 10


WITHOUT_ITS_HEAD = """
import sys, transformers
transformers.AutoModelForCausalLM.from_pretrained(sys.argv[1]).model.save_pretrained(sys.argv[2])
"""


def test_a_base_that_cannot_answer_is_refused(quick_job, rows, model, models, tmp_path, text_python):
    """An encoder, whose words look ahead; and a model without its last layer, which would be random each time."""
    bare = str(tmp_path / "bare")
    shutil.copytree(model, bare)
    text_python(WITHOUT_ITS_HEAD, model, bare)
    for base, says in ((models["bert"], "is no causal language model: it looks ahead"),
                       (bare, "cannot answer: it comes without the weights lm_head.weight")):
        job = quick_job("llm-lora", name=f"on-{len(says)}", schemas=[SCHEMA], params=params(base),
                        splits=splits(rows, train=10))
        assert job.run() == 1
        assert job.last["message"].endswith(says) and "a model that writes text" in job.last["install_hint"]


def test_it_does_what_any_trainer_must(model, conforms):
    conforms("llm-lora", model=model, epochs=1, max_length=96)


def test_four_bits_without_a_gpu_are_refused_with_the_reason(quick_job, rows, model):
    job = quick_job("llm-lora", schemas=[SCHEMA], params=params(model, four_bit="always"),
                   splits=splits(rows, train=10))
    assert job.run() == 1
    assert "4-bit weights need a CUDA device and bitsandbytes" in job.last["message"]
