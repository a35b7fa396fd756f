"""hf-text-classification with models made on the spot: small, untrained, quick."""

import json
import os
import subprocess
import sys
from importlib.util import find_spec

import pytest

# Looked for and not imported: each process of the suite would, and all that uses them is in others.
pytestmark = pytest.mark.skipif(not (find_spec("torch") and find_spec("transformers")), reason="needs transformers")
with_peft = pytest.mark.skipif(not find_spec("peft"), reason="needs peft")

PIPELINE = """
import json, sys
from transformers import pipeline
texts = json.load(sys.stdin)
p = pipeline("text-classification", sys.argv[1], device="cpu", top_k=None)
out = [{r["label"]: r["score"] for r in p([text], truncation=True)[0]} for text in texts]
# In batches as well: a decoder needs its padding token for that.
again = [{r["label"]: r["score"] for r in row} for row in p(texts, batch_size=4, truncation=True)]
assert all(abs(a[k] - b[k]) < 1e-4 for a, b in zip(out, again) for k in a)
assert not any(m == "potato_training" or m.startswith("potato_training.") for m in sys.modules)
json.dump(out, sys.stdout)
"""


def params(model, **more):
    return {"model": model, "epochs": 12, "learning_rate": 3e-3, "batch_size": 8, **more}


def texts_of(job, split):
    with open(job.dir / "bundle" / f"{split}.jsonl", encoding="utf-8") as f:
        return {row["id"]: row["text"] for row in map(json.loads, f)}


ADAPTER = """
import json, sys
from peft import PeftModel
from transformers import AutoConfig, AutoModelForSequenceClassification, AutoTokenizer, pipeline
base, saved = sys.argv[1:]
config = AutoConfig.from_pretrained(saved)
model = AutoModelForSequenceClassification.from_pretrained(base, config=config, ignore_mismatched_sizes=True)
model = PeftModel.from_pretrained(model, saved + "/adapter").merge_and_unload()
tokenizer = AutoTokenizer.from_pretrained(saved)
p = pipeline("text-classification", model=model, tokenizer=tokenizer, device="cpu", top_k=None)
json.dump([{r["label"]: r["score"] for r in p([t], truncation=True)[0]} for t in json.load(sys.stdin)], sys.stdout)
"""


@pytest.mark.sample("bert-None", "gpt2-lora4")
@pytest.mark.parametrize(("model", "lora"), [
    ("bert", None), ("gpt2", None), ("bert", {}), ("distilbert", {"r": 4}), ("gpt2", {})])
def test_the_saved_model_predicts_the_same_in_a_process_without_this_package(
        quick_job, models, model, lora, text_python):
    """As transformers' pipeline loads it, with some texts that are cut; a LoRA model also as its adapter, which holds
    all that was trained."""
    if lora is not None and not find_spec("peft"):
        pytest.skip("needs peft")
    job = quick_job("hf-text-classification", params=params(models[model], lora=lora, max_length=12))
    assert job.run() == 0, job.stderr[-3000:]
    directory = job.dir / "artifacts" / "sentiment"
    rows = [r for r in job.predictions() if r["split"] == "test"]
    by_id = texts_of(job, "test")
    texts = json.dumps([by_id[r["instance_id"]] for r in rows])
    found = [text_python(PIPELINE, directory, told=texts)]
    if lora is not None:
        found.append(text_python(ADAPTER, models[model], directory, told=texts))
    for answer in found:
        for row, scores in zip(rows, json.loads(answer), strict=True):
            assert {k: pytest.approx(v, abs=1e-4) for k, v in scores.items()} == row["scores"]
    assert not [p for p in directory.rglob("*") if p.suffix in (".bin", ".pt", ".pkl", ".pickle")]
    if (model, lora) == ("gpt2", None):         # the one that learns well in so few steps
        assert job.last["metrics"]["sentiment"]["test"]["accuracy"] > 0.6


def test_every_kind_is_trained_with_its_own_problem(quick_job, models):
    job = quick_job("hf-text-classification", schemas=("sentiment", "stars", "topics"), train=90,
                   params=params(models["gpt2"], class_weights=True, early_stopping=0, gradient_accumulation=2))
    assert job.run() == 0, job.stderr[-3000:]
    kinds = {}
    for name in ("sentiment", "stars", "topics"):
        config = json.loads((job.dir / "artifacts" / name / "config.json").read_text())
        kinds[name] = config["problem_type"]
        labels = job.last["label_order"][name]
        assert [config["id2label"][str(n)] for n in range(len(labels))] == labels
        assert job.last["metrics"][name]["test"]["accuracy"] > 0.5, name
    assert kinds == {"sentiment": "single_label_classification", "stars": "single_label_classification",
                     "topics": "multi_label_classification"}


def test_the_same_seed_is_the_same_model(make_job, quick_job, models):
    """Also under another hash seed: the quick jobs' process has one of its own."""
    found = []
    for n, make in enumerate((quick_job, make_job)):
        job = make("hf-text-classification", name=f"job{n}", params=params(models["bert"], epochs=2))
        assert job.run(env={"PYTHONHASHSEED": "99"}) == 0, job.stderr[-3000:]
        found.append((job.last["model_version"], (job.dir / "predictions.jsonl").read_bytes()))
    assert found[0] == found[1]


def test_a_job_that_was_killed_and_requeued_ends_in_the_same_model(make_job, quick_job, models):
    asked = params(models["bert"], epochs=2, early_stopping=0, checkpoint_minutes=0)
    whole = quick_job("hf-text-classification", params=asked)
    assert whole.run() == 0, whole.stderr[-3000:]
    job = make_job("hf-text-classification", name="again", params=asked).start()
    folder = job.dir / "checkpoints" / "sentiment"
    job.wait_until(lambda: any(folder.glob("step-*/COMPLETE")), "a checkpoint")
    job.process.kill()
    job.end()
    assert job.exit_code is None
    (folder / "step-00009999").mkdir()          # the newest, torn
    assert job.run(env={"SLURM_RESTART_COUNT": "1"}) == 0, job.stderr[-3000:]
    assert job.last["attempt"] == 2 and {e["attempt"] for e in job.events()} == {1, 2}
    assert any(m.startswith("resumed from step ") and "step 9999 was incomplete" in m for m in job.logs("info"))
    assert job.last["model_version"] == whole.last["model_version"]
    assert (job.dir / "predictions.jsonl").read_bytes() == (whole.dir / "predictions.jsonl").read_bytes()
    assert not (job.dir / "checkpoints").exists() and not (whole.dir / "checkpoints").exists()


def test_a_loss_that_explodes_ends_the_run_with_the_step(quick_job, models):
    job = quick_job("hf-text-classification", params=params(models["bert"], learning_rate=1e30, precision="fp32"))
    assert job.run() == 1
    message = job.last["message"]
    assert "at step" in message and "lower the learning rate or use fp32" in message
    assert message.startswith(("loss became NaN", "loss became infinite", "gradient became"))
    assert not (job.dir / "predictions.jsonl").exists()


def test_stop_and_keep_keeps_what_was_learned(quick_job, models):
    job = quick_job("hf-text-classification", params=params(models["bert"], epochs=1000, early_stopping=0))
    job.start()
    job.until('"phase":"fit"')
    job.control("keep")
    assert job.end() == 0, job.stderr[-3000:]
    assert job.last["kept"] is True and job.last["metrics"]["sentiment"]["test"]["n"] == 12
    assert (job.dir / "artifacts" / "sentiment" / "model.safetensors").exists()


@pytest.mark.parametrize("when", ["loading", '"phase":"fit"'])
def test_a_cancel_ends_it_at_any_point(make_job, quick_job, models, when):
    make = make_job if when == "loading" else quick_job        # where the libraries are imported, that too
    job = make("hf-text-classification", params=params(models["bert"], epochs=1000, early_stopping=0)).start()
    job.until(when)
    job.control("stop")
    assert job.end() == 4
    assert job.last["status"] == "cancelled"


def test_a_cancel_while_it_predicts(quick_job, models):
    job = quick_job("hf-text-classification", params=params(models["bert"], epochs=1), unlabeled=60000).start()
    job.until('"phase":"predict"')
    job.control("stop")
    assert job.end() == 4
    assert job.last["status"] == "cancelled" and not list(job.dir.glob("predictions*"))


def test_no_network_is_an_error_that_names_the_file(make_job, tmp_path):
    job = make_job("hf-text-classification", params=params("some-org/no-such-model"))
    assert job.run(env={"HF_HUB_OFFLINE": "1", "HF_HOME": str(tmp_path / "hf")}) == 1
    message, hint = job.last["message"], job.last["install_hint"]
    assert "config.json is not in " + str(tmp_path / "hf") in message and "HF_HUB_OFFLINE" in message
    assert "hf download some-org/no-such-model" in hint


def test_it_does_what_any_trainer_must(models, conforms):
    conforms("hf-text-classification", model=models["bert"], epochs=1, batch_size=8)


@with_peft
@pytest.mark.parametrize("offline", ["1", None])
def test_a_model_in_the_cache_is_found_without_a_network(make_job, models, tmp_path, offline):
    import shutil

    if subprocess.run(["unshare", "-rn", "true"], capture_output=True, check=False).returncode:
        pytest.skip("no network namespaces here")
    cached = tmp_path / "hf" / "hub" / "models--some-org--tiny"
    shutil.copytree(models["bert"], cached / "snapshots" / ("a" * 40))
    (cached / "refs").mkdir()
    (cached / "refs" / "main").write_text("a" * 40)
    job = make_job("hf-text-classification", params=params("some-org/tiny", epochs=1, lora={}))
    env = {k: v for k, v in os.environ.items() if k != "HF_HUB_OFFLINE"}
    env.update({"HF_HOME": str(tmp_path / "hf")}, **({"HF_HUB_OFFLINE": offline} if offline else {}))
    done = subprocess.run(["unshare", "-rn", sys.executable, "-m", "potato_training.worker", "--spec", "spec.json"],
                          cwd=job.dir, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL, env=env)
    assert done.returncode == 0, done.stdout[-500:] + done.stderr[-3000:]
    adapter = json.loads((job.dir / "artifacts" / "sentiment" / "adapter" / "adapter_config.json").read_text())
    assert adapter["base_model_name_or_path"] == "some-org/tiny"        # what another machine knows it by


@with_peft
def test_the_revision_that_was_asked_for_is_trained_and_written_down(make_job, models, tmp_path):
    """Two commits of one model in the cache: the newest, and one that a tag names."""
    import shutil

    cached = tmp_path / "hf" / "hub" / "models--some-org--tiny"
    (cached / "refs").mkdir(parents=True)
    for tag, commit, model in (("main", "a" * 40, "bert"), ("v1", "b" * 40, "distilbert")):
        shutil.copytree(models[model], cached / "snapshots" / commit)
        (cached / "refs" / tag).write_text(commit)
    env = {"HF_HOME": str(tmp_path / "hf"), "HF_HUB_OFFLINE": "1"}
    job = make_job("hf-text-classification", params=params("some-org/tiny", revision="v1", epochs=1, lora={}))
    assert job.run(env=env) == 0, job.stderr[-3000:]
    assert "some-org/tiny is at commit " + "b" * 40 in job.logs("info")
    saved = job.dir / "artifacts" / "sentiment"
    assert json.loads((saved / "config.json").read_text())["model_type"] == "distilbert"
    assert json.loads((saved / "head.json").read_text())["revision"] == "b" * 40
    assert json.loads((saved / "adapter" / "adapter_config.json").read_text())["revision"] == "b" * 40
    job = make_job("hf-text-classification", name="none", params=params("some-org/tiny", revision="v2"))
    assert job.run(env=env) == 1
    assert job.last["message"].startswith("model 'some-org/tiny' at revision 'v2': config.json is not in ")
    assert "hf download some-org/tiny --revision v2" in job.last["install_hint"]


@with_peft
def test_adapters_for_layers_that_are_not_there(quick_job, models):
    job = quick_job("hf-text-classification", params=params(models["bert"], lora={"target_modules": ["attn"]}))
    assert job.run() == 1
    assert job.last["message"].startswith("lora.target_modules: the model has no layers attn ")
    assert "dense" in job.last["install_hint"] and "query" in job.last["install_hint"]


def test_a_tokenizer_that_does_not_know_the_words_is_warned_of(quick_job, models):
    rows = [{"id": f"{n}", "text": "nieznane słowa po polsku" + " great" * (n % 2),
             "labels": {"sentiment": ("pos", "neg")[n % 2]}} for n in range(8)]
    job = quick_job("hf-text-classification", params=params(models["bert"], epochs=1), splits={"train": rows})
    assert job.run() == 0, job.stderr[-3000:]
    (warned,) = [w for w in job.logs("warning") if "the tokenizer of" in w]
    assert "does not know 88 % of the words in the train items" in warned


def test_a_directory_has_no_revisions(quick_job, models):
    job = quick_job("hf-text-classification", params=params(models["bert"], revision="v1"))
    assert job.run() == 1
    assert "only models of huggingface.co have revisions" in job.last["message"]


@pytest.mark.parametrize(("spoil", "says"), [
    (lambda d: (d / "config.json").unlink(), "config.json is not in"),
    (lambda d: (d / "model.safetensors").unlink(), "model.safetensors is not in"),
    (lambda d: (d / "model.safetensors").rename(d / "pytorch_model.bin"), "model.safetensors is not in"),
    (lambda d: os.truncate(d / "model.safetensors", 1000), "is damaged: it is not as long as its head says"),
    (lambda d: [p.unlink() for p in d.glob("tokenizer*")], "the tokenizer's files (tokenizer.json and its like) are "
                                                           "not in"),
])
def test_a_model_directory_that_is_not_whole(quick_job, models, tmp_path, spoil, says):
    import shutil

    shutil.copytree(models["bert"], tmp_path / "model")
    spoil(tmp_path / "model")
    job = quick_job("hf-text-classification", params=params(str(tmp_path / "model")))
    assert job.run() == 1
    assert says in job.last["message"]


def test_a_directory_that_is_not_there(quick_job):
    job = quick_job("hf-text-classification", params=params("/no/such/model"))
    assert job.run() == 1
    assert "there is no directory /no/such/model" in job.last["message"]


def test_a_local_model_needs_no_network(make_job, models):
    """In a network namespace without any interface."""
    job = make_job("hf-text-classification", params=params(models["bert"], epochs=1))
    if subprocess.run(["unshare", "-rn", "true"], capture_output=True, check=False).returncode:
        pytest.skip("no network namespaces here")
    done = subprocess.run(["unshare", "-rn", sys.executable, "-m", "potato_training.worker", "--spec", "spec.json"],
                          cwd=job.dir, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
    assert done.returncode == 0, done.stderr[-3000:]


def test_a_device_that_is_missing_falls_back_with_a_warning(quick_job, models, text_python):
    if text_python("import torch; print(torch.cuda.is_available())") == "True\n":
        pytest.skip("it is not missing here")
    job = quick_job("hf-text-classification", params=params(models["bert"], epochs=1),
                   limits={"device": "cuda:0", "num_threads": 1})
    assert job.run() == 0
    assert any(w.startswith("cuda:0 was asked for and is not there") for w in job.logs("warning"))
    devices = [e["device"] for e in job.events("status") if "device" in e]
    assert devices[-1] in ("cpu", "mps")


ODD = {
    "4+1": [("good", "a")] * 4 + [("bad", "b")],
    "once each": [(f"word{n}", "abcde"[n]) for n in range(5)],
    "long": [("great " * 20000, "a"), ("awful " * 20000, "b")] * 3,
    "right to left": [("😀 טוב", "a"), ("😡 רע", "b")] * 3,
}


@pytest.mark.parametrize("model", ["bert", "gpt2"])
def test_odd_data_sets(quick_job, models, model):
    """One run, a scheme for each odd set."""
    rows, schemas = [], []
    for name, pairs in ODD.items():
        labels = sorted({label for _, label in pairs})
        schemas.append({"name": name, "annotation_type": "radio", "kind": "nominal", "labels": labels})
        rows += [{"id": f"{name}{n}", "text": text, "labels": {name: label}} for n, (text, label) in enumerate(pairs)]
    empty = {"id": "e", "text": "", "labels": {}}
    job = quick_job("hf-text-classification", schemas=schemas, params=params(models[model], epochs=2),
                   splits={"train": rows, "val": rows, "unlabeled": [empty]})
    assert job.run() == 0, job.stderr[-3000:]
    assert len(job.predictions()) == (len(rows) + 1) * len(ODD)
