"""What a JSON Schema cannot say about one backend's entry: its host, paths and environment.

GPUs and Slurm have modules of their own.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from posixpath import normpath

from . import gpu_rules, secrets, slurm_rules
from .findings import ERROR, NOTE, WARNING
from .near import nearest
from .nodes import Node
from .walk import BAD, Walker
from .words import quoted

#: Local to each node of a cluster: what the login node writes there, the compute nodes do not see.
_NODE_LOCAL = ("/tmp", "/var/tmp", "/dev/shm")  # noqa: S108
_SCHEDULER_VARIABLES = ("SBATCH_", "SLURM_", "SQUEUE_", "SCANCEL_", "SCONTROL_")
_PYTHON = re.compile(r"^python[0-9.]*(?![\w./-])")


def check_backend(path: str, node: Node, values, walker: Walker) -> str:
    """Checks one entry whose values are already of the right types, or BAD; says which type it is of.

    ``gpus`` in ``values`` becomes one text: auto, none, or numbers joined by commas.
    """
    return Entry(path, node, values if isinstance(values, dict) else {}, walker).check()


class Entry:
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
        for key in ("prelude", "sbatch_args"):
            for place, line, node in self.entries(key):
                if name := secrets.assigned(line):
                    self.say(place, secrets.MESSAGE.format(name), secrets.IN_FILE, WARNING, node)
        if kind == "ssh":
            self.check_packages()
            gpu_rules.check_gpus(self)
        else:
            slurm_rules.check_time(self)
            slurm_rules.check_sbatch_args(self)
            slurm_rules.check_resources(self)
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
            if secrets.is_name(name):
                self.say(key, secrets.MESSAGE.format(name), secrets.IN_FILE, WARNING, key_node)
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
            if secrets.in_address(text):
                self.say(place, secrets.MESSAGE.format("the address"), secrets.BY_ITSELF, WARNING, node)
            if any(word.startswith("-") for word in text.split()[1:]):
                self.say(place, f"{quoted(text)} holds an option of pip", "write the requirement alone; set "
                         "PIP_INDEX_URL and the like under env", at=node)
