"""What will be done: a checked config and a request become a JobSpec and shell scripts. Pure."""

from .compile import CompiledRun, compile_job, compile_run
from .jobspec import JobSpec
from .place import Place
from .request import RunRequest

__all__ = ["CompiledRun", "JobSpec", "Place", "RunRequest", "compile_job", "compile_run"]
