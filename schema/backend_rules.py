"""What a JSON Schema cannot say about one backend's entry: paths, environment, GPUs, time, sbatch flags."""

from __future__ import annotations

import re
from collections.abc import Iterator
from posixpath import normpath

from . import slurmtime
from .findings import ERROR, NOTE, WARNING
from .near import nearest
from .nodes import SCALAR, Node
from .sbatch_flags import HELD, OWNED
from .scalars import NotThat, as_integer
from .walk import BAD, Walker, quoted

_LONG_SECONDS = 6 * 3600
#: A number of MB this small was meant as gigabytes: Python with torch alone takes more.
_LITTLE_MB = 512
#: Local to each node of a cluster: what the login node writes there, the compute nodes do not see.
_NODE_LOCAL = ("/tmp", "/var/tmp", "/dev/shm")  # noqa: S108
_SECRET_WORDS = ("TOKEN", "KEY", "SECRET", "PASSWORD", "PASSWD", "PASSPHRASE")
#: What a variable ends in that says where something is: the secret itself does not stand in the config.
_PLACES = ("FILE", "PATH", "DIR")
_SCHEDULER_VARIABLES = ("SBATCH_", "SLURM_", "SQUEUE_", "SCANCEL_", "SCONTROL_")
_PYTHON = re.compile(r"^python[0-9.]*(?![\w./-])")
_MAIL_TYPES = ("NONE", "BEGIN", "END", "FAIL", "REQUEUE", "ALL", "INVALID_DEPEND", "STAGE_OUT", "TIME_LIMIT",
               "TIME_LIMIT_90", "TIME_LIMIT_80", "TIME_LIMIT_50", "ARRAY_TASKS")


def check_backend(path: str, node: Node, values, walker: Walker) -> str:
    """Checks one entry whose values are already of the right types, or BAD; says which type it is of.

    ``gpus`` in ``values`` becomes one text: auto, none, or numbers joined by commas.
    """
    return _Entry(path, node, values if isinstance(values, dict) else {}, walker).check()


class _Entry:
    def __init__(self, path: str, node: Node, values: dict, walker: Walker):
        self.path = path
        self.node = node
        self.values = values
        self.walker = walker

    def given(self, key: str):
        """The value of a key that was written and is right, else None."""
        value = self.values.get(key)
        return None if value is BAD else value

    def entries(self, key: str) -> Iterator[tuple[str, str, Node]]:
        """(place, text, node) of each right entry of a list key."""
        node, texts = self.node.get(key), self.given(key)
        if node is not None and isinstance(texts, list):
            for i, text in enumerate(texts):
                if text is not BAD:
                    yield f"{key}[{i}]", text, node.value[i]

    def say(self, key: str, message: str, hint: str = "", level: str = ERROR, at: Node | None = None) -> None:
        node = at or self.node.get(key) or self.node
        self.walker.say(node, f"{self.path}.{key}" if key else self.path, message, hint, level)

    def check(self) -> str:
        kind = self.given("type")
        if kind not in ("ssh", "slurm", "agent"):
            self.check_any_keys()
            return ""
        if kind == "agent":
            return kind
        self.check_host()
        self.check_identity_file()
        for key in ("remote_dir", "env_file"):
            self.check_remote_path(key)
        for key in ("python", "job_python"):
            program = self.given(key) or ""
            if "/" in program or program[:1] in ("-", "~", "$"):
                self.check_remote_path(key)
            elif " " in program:
                self.say(key, f"{key} is {quoted(program)}; it is one program, without arguments",
                         f"write {key}: {(_PYTHON.findall(program) or ['/path/of/the/environment/bin/python'])[0]}")
        self.check_env(kind)
        for place, line, node in self.entries("prelude"):
            if line.lstrip().upper().startswith("#SBATCH"):
                self.say(place, "prelude cannot carry #SBATCH lines; they would be ignored",
                         "use the keys of the same names (partition, time, ...) or sbatch_args", at=node)
        if kind == "ssh":
            self.check_packages()
            self.check_gpus()
        else:
            self.check_time()
            self.check_sbatch_args()
            self.check_resources()
        return kind

    def check_any_keys(self) -> None:
        """Without a type, keys that no type has are all that can be told."""
        defs = self.walker.root["$defs"]
        known = {k for t in ("ssh", "slurm", "agent") for k in defs[t]["properties"]}
        for key, key_node, _ in self.node.items():
            if key not in known:
                near = nearest(key, known)
                self.say(key, f"unknown key {quoted(key)}: no type of backend has it",
                         f"did you mean {near}?" if near else "", at=key_node)

    def check_host(self) -> None:
        host = self.given("host")
        if host is None:
            return
        name, _, port = host.rpartition(":")
        if name and ":" not in name and port.isdigit() and "/" not in host:
            self.say("host", f"host is {quoted(host)}; ssh would look for a host of that whole name",
                     f"write host: {name} and port: {port}")
        if "@" in host and self.given("user") is not None:
            self.say("user", f"user is {quoted(self.given('user'))}, and host already names one", "keep one of the two")

    def check_identity_file(self) -> None:
        text = self.given("identity_file") or ""
        if "$" in text:
            self.say("identity_file", f"identity_file is {quoted(text)}; variables are not expanded in it",
                     "write the whole path; ~/... means the home directory on this machine")

    # --- paths ----------------------------------------------------------------------------------

    def check_remote_path(self, key: str) -> None:
        text = self.given(key)
        if not isinstance(text, str):
            return
        if "$" in text:
            self.say(key, f"{key} is {quoted(text)}; variables are not expanded in it",
                     'write the whole path; "~" and ~/... mean the home directory there')
        elif text.startswith("-"):
            self.say(key, f"{key} is {quoted(text)}; a program would take it for an option", "write an absolute path")
        elif text[0] == "~" and text != "~" and not text.startswith("~/"):
            self.say(key, f"{key} is {quoted(text)}; another account's home directory is not looked up",
                     "write the absolute path")
        elif text[0] not in "~/":
            self.say(key, f"{key} is {quoted(text)}, a relative path", f"write an absolute path, or ~/{text}")
        elif normpath(text[1:].lstrip("/") or ".").split("/")[0] == ".." and text[0] == "~":
            self.say(key, f"{key} is {quoted(text)}, which leads out of the home directory", "write the absolute path")
        elif key == "remote_dir":
            self.check_remote_dir(text)

    def check_remote_dir(self, text: str) -> None:
        key = "remote_dir"
        bare = normpath("/" + text.lstrip("/"))
        if bare in ("/", "/~"):
            where = "the home directory" if bare == "/~" else "the root directory"
            self.say(key, f"remote_dir is {quoted(text)}: code/ and jobs/ would lie in {where} itself",
                     "write ~/potato-training, or another directory of their own", NOTE)
        if self.values["type"] == "slurm":
            if "%" in text:
                self.say(key, f"remote_dir is {quoted(text)}; Slurm puts a number or a name in the place of what "
                         "begins with % in the path of its output", "use a directory without % in its path")
            plain = "/" + normpath(text).lstrip("/")
            local = next((d for d in _NODE_LOCAL if plain == d or plain.startswith(d + "/")), None)
            if local and text[0] == "/":
                self.say(key, f"remote_dir is {quoted(text)}, under {local}, which is local to each node: the compute "
                         "nodes would not see what the login node puts there",
                         "use a directory that all nodes share, in your home or a project's space")

    # --- environment ------------------------------------------------------------------------------

    def check_env(self, kind: str) -> None:
        node = self.node.get("env")
        for name, key_node, value_node in node.items() if node else ():
            key = f"env.{name}"
            value = (self.given("env") or {}).get(name)
            if not isinstance(value, str):
                continue
            if "$" in value:
                if name == "PATH":
                    self.say(key, "PATH holds a $, and values are literal", "write the whole PATH", at=value_node)
                else:
                    self.say(key, f"{name} holds a $, and values are literal: nothing is put in its place",
                             "set it in a prelude line if the shell should expand it", NOTE, value_node)
            elif value.startswith("~"):
                self.say(key, f"{name} begins with ~, and values are literal: it does not become a home directory",
                         "write the absolute path", NOTE, value_node)
            words = name.upper().split("_")
            if words[-1] not in _PLACES and any(word.endswith(_SECRET_WORDS) for word in words):
                self.say(key, f"{name} looks like a secret, which stands here for everyone who reads the "
                         "config", "put it into a file on the host that only you can read, and name that file with "
                         "env_file", WARNING, key_node)
            if name in ("PYTHONPATH", "PYTHONHOME"):
                self.say(key, f"{name} has no effect: it is cleared before the interpreter starts",
                         "install what the training needs into the environment of the interpreter", WARNING, key_node)
            elif kind == "slurm" and name == "CUDA_VISIBLE_DEVICES":
                self.say(key, "the scheduler sets CUDA_VISIBLE_DEVICES inside a job; another value would take "
                         "someone else's GPU, or none", "remove it; ask for GPUs with gres", at=key_node)
            elif kind == "slurm" and name.startswith(_SCHEDULER_VARIABLES) and name != "SLURM_CONF":
                self.say(key, f"{name} has no effect: such variables are removed before sbatch runs",
                         "use the key for that flag, or sbatch_args", WARNING, key_node)

    def check_packages(self) -> None:
        for place, text, node in self.entries("packages"):
            if any(word.startswith("-") for word in text.split()[1:]):
                self.say(place, f"{quoted(text)} holds an option of pip", "write the requirement alone; set "
                         "PIP_INDEX_URL and the like under env", at=node)

    # --- GPUs ---------------------------------------------------------------------------------------

    def check_gpus(self) -> None:
        node, value = self.node.get("gpus"), self.given("gpus")
        if node is None or value is None:
            return
        if node.kind == SCALAR:
            numbers = self.gpu_text(node, value)
        else:
            if not value:
                self.say("gpus", "gpus is an empty list", "write gpus: none to hide every GPU, or gpus: auto")
            numbers = [self.gpu_number(text, f"gpus[{i}]", node.value[i])
                       for i, text in enumerate(value) if text is not BAD]
        named = [n for n in numbers if n]
        if len(set(named)) < len(named):
            self.say("gpus", "gpus names a GPU twice")
        self.values["gpus"] = ",".join(named) or "auto"
        if named and named != ["auto"] and self.given("min_free_gpu_mb") is not None:
            self.say("min_free_gpu_mb", "min_free_gpu_mb has no effect: it is for gpus: auto alone", "", NOTE)

    def gpu_text(self, node: Node, text: str) -> list[str]:
        if text in ("auto", "none"):
            return [text]
        if node.plain and text[:1].isdigit() and "," not in text:
            try:
                number = as_integer(text)
            except NotThat:
                pass
            else:
                self.say("gpus", f'gpus is {text} without quotes: it pins GPU number {number}, whatever '
                         f'else runs there', f'write gpus: "{number}" if you mean that, or gpus: auto for one free GPU',
                         WARNING)
                return [str(number)]
        near = nearest(text, ("auto", "none"))
        if near or not text.strip():
            self.say("gpus", f"gpus is {quoted(text)}", f"did you mean {near}?" if near else
                     'write auto, none, "1", "0,1" or a list of numbers')
            return []
        return [self.gpu_number(part.strip(), "gpus", node) for part in text.split(",")]

    def gpu_number(self, text: str, key: str, node: Node) -> str:
        if text.startswith(("GPU-", "MIG-")) and text[4:].replace("-", "").replace("/", "").isalnum():
            return text
        try:
            if not 0 <= as_integer(text) <= 9999:
                raise NotThat
        except NotThat:
            self.say(key, f"{quoted(text)} is not the number of a GPU", 'write auto, none, "1", "0,1" or a list of '
                     "numbers, as nvidia-smi counts them", at=node)
            return ""
        return str(as_integer(text))

    # --- Slurm --------------------------------------------------------------------------------------

    def check_time(self) -> None:
        text = self.given("time")
        if text is None:
            return
        length = slurmtime.seconds(text)
        if length is None:
            self.say("time", f"{quoted(text)} is not a Slurm time; use {slurmtime.FORMS}")
        elif length > _LONG_SECONDS:
            self.say("time", f"{self.path}.time is {text}. A job that holds a GPU for more than 6 hours is long on a "
                     "shared cluster; check its policy", "", WARNING)
        elif text.count(":") == 1 and "-" not in text:
            self.say("time", f"{text} is {text.split(':')[0]} minutes to Slurm, not hours",
                     f"for hours write {text}:00", NOTE)

    def check_sbatch_args(self) -> None:
        defs = self.walker.root["$defs"]
        covered = {p["x-sbatch"][2:]: k for k, p in defs["keys"]["properties"].items() if "x-sbatch" in p}
        for place, text, node in self.entries("sbatch_args"):
            flag = text[2:].split("=")[0]
            hint = OWNED.get(flag) or (f"use the key {covered[flag]}" if flag in covered else "")
            if hint:
                message = f"--{flag} belongs to the program" if flag in OWNED else f"--{flag} has a key of its own"
            else:
                if len(flag) > 2 and any(held.startswith(flag) for held in HELD):
                    self.say(place, f"--{flag} makes every job wait until somebody releases it", "remove the flag, or "
                             "be ready with scontrol release", WARNING, node)
                    continue
                # getopt takes any beginning of a flag: --outp is --output.
                long = next((f for f in (*OWNED, *covered) if f.startswith(flag)), None)
                if long is None:
                    continue
                message = f"sbatch takes --{flag} for --{long}"
                hint = OWNED.get(long) or f"use the key {covered[long]}"
            self.say(place, message, hint, at=node)

    def check_resources(self) -> None:
        args = [text for _, text, _ in self.entries("sbatch_args")]
        if "gpu" not in (self.given("gres") or "").lower() and not any(a.startswith("--gpus") for a in args):
            self.say("gres" if self.given("gres") else "",
                     "without gres the job gets no GPU" if not self.given("gres") else
                     f"gres is {quoted(self.given('gres'))}, which asks for no GPU", "write gres: gpu:1 for one", NOTE)
        mem = str(self.given("mem") or "")
        if mem.isdigit() and 0 < int(mem) < _LITTLE_MB:
            self.say("mem", f"mem is {mem}, which is {mem} MB", f"write {mem}G for gigabytes", NOTE)
        threads, cpus = self.given("num_threads"), self.given("cpus_per_task")
        if threads is not None and cpus is not None and threads != cpus:
            self.say("num_threads", f"num_threads is {threads} and cpus_per_task is {cpus}", "", NOTE)
        for word in (self.given("mail_type") or "").split(","):
            word = word.strip()
            if word and word.upper() not in _MAIL_TYPES:
                near = nearest(word, _MAIL_TYPES)
                self.say("mail_type", f"mail_type has {quoted(word)}, which Slurm would pass over",
                         f"did you mean {near}?" if near else "the words are " + ", ".join(_MAIL_TYPES), WARNING)
