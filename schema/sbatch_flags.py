"""sbatch's flags that a config cannot have as it likes, beside those that have a key of their own."""

from __future__ import annotations

#: sbatch flags that job.sh or the program itself sets, with what to do instead.
OWNED = {
    "output": "the program reads slurm.out in the job's directory; remove the flag",
    "error": "the program reads slurm.out in the job's directory; remove the flag",
    "chdir": "use remote_dir",
    "job-name": "the job is named after its run, so that it can be found again; remove the flag",
    "parsable": "the program submits with it already; remove the flag",
    "quiet": "the program reads the job's number from what sbatch prints; remove the flag",
    "wrap": "use prelude for further shell lines",
    "array": "start several runs instead",
    "wait": "the program waits for the job in its own way; remove the flag",
    "test-only": "use `potato training check`",
    "requeue": "use the key requeue: true",
    "no-requeue": "use the key requeue: false, which is the default",
    "open-mode": "the program sets it with requeue: true; remove the flag",
    "signal": "use model_training.grace_seconds",
    "uid": "the job runs as the account that logs in; remove the flag",
    "gid": "the job runs as the account that logs in; remove the flag",
    "help": "the job would never be submitted; remove the flag",
    "usage": "the job would never be submitted; remove the flag",
    "version": "the job would never be submitted; remove the flag",
}

#: Those with which a job waits until somebody lets it go.
HELD = ("hold",)
