"""The training loop with a model of one layer: the ladder, accumulation, the best epoch, losses."""

import math
from types import SimpleNamespace

import pytest
from potato_training.worker.failures import OutOfMemory, TrainerError
from potato_training.worker.trainers import hf_loop, hf_model, hf_precision, hf_predict
from potato_training.worker.trainers.base import Handle
from potato_training.worker.trainers.hf_batches import Encoded

PARAMS = {"batch_size": 8, "gradient_accumulation": 1, "learning_rate": 0.05, "weight_decay": 0.0, "warmup_ratio": 0.0,
          "early_stopping": 0, "head_learning_rate": None}


@pytest.fixture(scope="module", autouse=True)
def libraries():
    """Imported when a test of this file runs: each process of the suite reads the file, and one runs its tests."""
    global torch, FP32
    torch = pytest.importorskip("torch")
    FP32 = hf_precision.Precision("fp32", "cpu")
    torch.set_num_threads(1)    # two that wait for each other spin, and on a busy machine against everybody else


def Small(room=None, labels=3):
    """Bag of tokens. ``room`` is how many items fit into memory at once."""

    class Small(torch.nn.Module):
        def __init__(self):
            super().__init__()
            torch.manual_seed(0)
            self.embed = torch.nn.Embedding(20, 8)
            self.classifier = torch.nn.Linear(8, labels)
            self.room = room
            self.sizes = []

        def forward(self, input_ids, **_):
            self.sizes.append(len(input_ids))
            if self.room is not None and len(input_ids) > self.room:
                raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")
            return SimpleNamespace(logits=self.classifier(self.embed(input_ids).mean(dim=1)))

    return Small()


class Run(Handle):
    def __init__(self, keep_at=None):
        self.warnings, self.metrics, self.asked, self.keep_at = [], [], 0, keep_at

    def warn(self, msg):
        self.warnings.append(msg)

    def metric(self, split, name, value, step=None):
        self.metrics.append((split, name, value, step))

    def keep_wanted(self):
        self.asked += 1
        return self.keep_at is not None and self.asked > self.keep_at


def collate(encoded, indices):
    return {"input_ids": torch.tensor([encoded.rows[n]["input_ids"] for n in indices])}


collate.device = "cpu"


def data(n=40):
    encoded = Encoded([{"input_ids": [k % 3 + 1, k % 7 + 4, 12]} for k in range(n)])
    return encoded, torch.tensor([k % 3 for k in range(n)])


def train(model, run=None, epochs=2, evaluate=None, **changes):
    encoded, targets = data()
    loop = hf_loop.Loop(model, run or Run(), {**PARAMS, **changes}, "nominal", 0, collate, FP32, evaluate=evaluate)
    loop.train(encoded, targets, epochs)
    return loop


def weights(model):
    return torch.cat([p.detach().flatten() for p in model.parameters()])


def test_out_of_memory_halves_until_it_fits_and_the_result_is_the_same():
    plain, narrow, run = Small(), Small(room=3), Run()
    train(plain)
    loop = train(narrow, run)
    assert loop.at_once == 2
    assert len(run.warnings) == 2 and "batches of 8 items: going on with 4" in run.warnings[0]
    assert torch.allclose(weights(plain), weights(narrow), atol=1e-5)


def test_out_of_memory_with_one_item_is_the_end():
    with pytest.raises(OutOfMemory) as found:
        train(Small(room=0))
    assert found.value.message == "GPU out of memory: lower batch_size or max_length" and found.value.exit_code == 5


def test_accumulating_is_the_same_as_larger_batches_of_the_same_items():
    """Two batches of 4 a step move the weights as one batch of 8 does, whatever the batches' lengths."""
    whole, parts = Small(), Small()
    encoded, targets = data(8)
    for model, size, many in ((whole, 8, 1), (parts, 4, 2)):
        params = {**PARAMS, "batch_size": size, "gradient_accumulation": many}
        hf_loop.Loop(model, Run(), params, "nominal", 0, collate, FP32).train(encoded, targets, 3)
    assert torch.allclose(weights(whole), weights(parts), atol=1e-5)


def test_prediction_goes_on_with_smaller_batches():
    model, run = Small(room=3), Run()
    encoded, _ = data()
    found = hf_predict.predict_logits(model, encoded, collate, FP32, run)
    model.room = None
    again = hf_predict.predict_logits(model, encoded, collate, FP32, run)
    assert torch.allclose(found, again, atol=1e-5)
    assert run.warnings


def test_prediction_of_one_item_that_does_not_fit():
    with pytest.raises(OutOfMemory):
        hf_predict.predict_logits(Small(room=0), data()[0], collate, FP32, Run())


def test_the_best_epoch_is_the_one_that_stays():
    model, seen = Small(), []
    scores = iter([(0.5, 1.0), (0.9, 1.0), (0.9, 2.0), (0.1, 0.1)])

    def evaluate():
        seen.append(weights(model))
        return next(scores)
    train(model, epochs=4, evaluate=evaluate)
    assert torch.equal(weights(model), seen[1])


def test_early_stopping_counts_epochs_without_a_better_one():
    model, seen = Small(), []

    def evaluate():
        seen.append(1)
        return (1.0 / len(seen), 1.0)
    train(model, epochs=50, evaluate=evaluate, early_stopping=3)
    assert len(seen) == 4


def test_keep_ends_at_the_next_batch():
    run = Run(keep_at=7)
    loop = train(Small(), run, epochs=50)
    assert loop.step == 7


def test_keep_prefers_the_better_of_the_last_epoch_and_now():
    model, seen = Small(), []

    def evaluate():
        seen.append(weights(model))
        return (1.0, 0.1) if len(seen) == 1 else (0.2, 3.0)
    train(model, Run(keep_at=7), epochs=50, evaluate=evaluate)
    assert len(seen) == 2 and torch.equal(weights(model), seen[0])


def test_keep_before_the_first_step_has_nothing_to_keep():
    with pytest.raises(TrainerError, match="before the first step"):
        train(Small(), Run(keep_at=0))


@pytest.mark.parametrize(("value", "word"), [(math.nan, "NaN"), (math.inf, "NaN")])
def test_a_loss_that_is_not_finite_is_caught_at_its_step(value, word):
    model = Small()
    with torch.no_grad():
        model.classifier.weight[0, 0] = value
    run = Run()
    with pytest.raises(TrainerError, match=f"loss became {word} at step 1; lower the learning rate or use fp32"):
        train(model, run)
    assert run.metrics[0][:2] == ("train", "loss") and run.metrics[0][3] == 1


def test_what_is_to_blame_depends_on_the_step():
    """At the first step nothing has been learned yet, whatever the learning rate."""
    model = Small()
    with torch.no_grad():
        model.classifier.weight[0, 0] = math.nan
    with pytest.raises(TrainerError) as first:
        train(model, Run())
    assert "from the model's own weights, or the precision (fp32)" in first.value.hint
    with pytest.raises(TrainerError) as scaled:
        train(model, Run(), lora={"alpha": 1e30})
    assert scaled.value.hint.endswith("the precision (fp32), or lora.alpha (1e+30)")
    with pytest.raises(TrainerError) as later:
        train(Small(), Run(), head_learning_rate=1e38, learning_rate=1e38)
    assert "head_learning_rate is 1e+38" in later.value.hint and "learning_rate" in later.value.hint


@pytest.mark.parametrize(("pace", "asked", "head"), [
    (2e-5, None, 2e-4), (3e-4, None, 1e-3), (5e-3, None, 5e-3), (2e-5, 7e-4, 7e-4)])
def test_the_head_learns_faster(pace, asked, head):
    model = Small()
    params = {**PARAMS, "learning_rate": pace, "head_learning_rate": asked, "weight_decay": 0.1}
    optimizer = hf_loop.make_optimizer(model, params, ["classifier"])
    rates = {id(p): (g["lr"], g["weight_decay"]) for g in optimizer.param_groups for p in g["params"]}
    assert rates[id(model.classifier.weight)] == (pytest.approx(head), 0.1)
    assert rates[id(model.classifier.bias)] == (pytest.approx(head), 0.0)
    assert rates[id(model.embed.weight)] == (pace, 0.1)


def test_an_ordinal_guess_far_away_costs_more_than_a_near_one():
    logits = torch.tensor([[0.0, 9, 0, 0, 0], [0.0, 0, 0, 0, 9]])
    near, far = hf_loop.losses("ordinal", logits, torch.tensor([0, 0]), None)
    assert far > near + 1
    plain = hf_loop.losses("nominal", logits, torch.tensor([0, 0]), None)
    assert torch.allclose(plain[0], plain[1])


def test_precision_of_a_processor():
    assert hf_precision.Precision("auto", "cpu").name == ("bf16" if hf_precision.cpu_is_quick_in_bf16() else "fp32")
    warnings = []
    assert hf_precision.Precision("fp16", "cpu", warnings.append).name in ("bf16", "fp32")
    assert warnings


def test_what_an_adapter_says_of_itself_is_in_one_order():
    """peft keeps names in sets, whose order is another in every process."""
    names = [f"layer{n}" for n in range(20)]
    config = SimpleNamespace(base_model_name_or_path="/cache/snapshot", target_modules=set(names), r=4)
    hf_model.settle_adapter(SimpleNamespace(peft_config={"default": config}), "some-org/model", "a" * 40)
    assert config.target_modules == sorted(names)
    assert (config.base_model_name_or_path, config.revision) == ("some-org/model", "a" * 40)


def test_layers_that_adapters_may_be_put_into_are_named_gpt_2_s_own_kind_too():
    class Conv1D(torch.nn.Module):
        """As transformers calls GPT-2's."""

    model = torch.nn.ModuleDict({"c_attn": Conv1D(), "lm_head": torch.nn.Linear(2, 2), "norm": torch.nn.LayerNorm(2)})
    assert hf_model._no_such_layers(model, ["x"]).hint == "its linear layers are c_attn, lm_head"
