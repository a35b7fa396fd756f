#!/bin/sh
# potato-training 1.2.3: run example on backend slurm-least
# config sha256 de5f0c2596e4cb37e86b1ac3bad7161b86621e1f3db78fed6dce50a7207bc416
# Lets go of everything that the run holds on the host. stdin: a mark; "all", or "all but artifacts" to spare model
# files that did not arrive; the directories of forwarded sockets, or "-"; the seconds for its processes to end.
IFS= read -r potato_mark || exit 64
printf '\n%s begin\n' "$potato_mark"
umask 077
# An answer is lines of key=value between "MARK begin" and "MARK end CODE". The mark is the first line of stdin,
# another one for each call, so that whatever a login shell prints is never taken for an answer.
potato_say() { printf '%s=%s\n' "$1" "$2"; } # KEY VALUE
potato_end() { # CODE
  printf '%s end %s\n' "$potato_mark" "$1"
  exit "$1"
}
potato_fail() { # MESSAGE
  potato_say error "$1"
  potato_end 1
}

# What a login shell may bring along and would get into our way.
unset PYTHONPATH PYTHONHOME VIRTUAL_ENV CONDA_PREFIX CONDA_DEFAULT_ENV CONDA_SHLVL

# SBATCH_* of the environment would win over the job's #SBATCH lines, SQUEUE_USERS hides a running job, and
# SCANCEL_PARTITION makes a cancel do nothing, all with exit code 0 (seen on Slurm 22.05).
for potato_name in $(env | sed -n 's/^\(S[A-Z]*_[A-Za-z0-9_]*\)=.*/\1/p'); do
  case $potato_name in
    SLURM_CONF) ;;
    SBATCH_* | SQUEUE_* | SCANCEL_* | SCONTROL_* | SLURM_*) unset "$potato_name" ;;
  esac
done
export LC_ALL=C

IFS= read -r potato_what || potato_what=
case $potato_what in
  all | "all but artifacts") ;;
  *) potato_fail "nobody said what to remove" ;;
esac
read -r potato_sockets || potato_fail "nobody named the socket"
IFS= read -r potato_patience || potato_patience=0
set -f
for potato_socket in $potato_sockets; do
  case $potato_socket in
    /tmp/p-*/*) potato_fail "no such socket" ;;
    /tmp/p-*) rm -rf -- "$potato_socket" ;;
  esac
done
set +f

# model_training.backends.slurm-least.remote_dir
potato_job="$HOME"/'jobs/example'
[ -d "$potato_job" ] || potato_end 0

# model_training.backends.slurm-least.python: its agent and its worker, told by pid and start time
if [ -f "$potato_job/code/potato_training/worker/release.py" ]; then
  potato_python='python3'
  command -v -- "$potato_python" > /dev/null || potato_python=python3
  PYTHONPATH=$potato_job/code "$potato_python" -m potato_training.worker.release "$potato_job" "$potato_patience" ||
    potato_fail "$(uname -n) cannot let go of this run"
fi
if [ "$potato_what" = all ]; then
  rm -rf -- "$potato_job" || potato_fail "$(uname -n) cannot remove $potato_job"
else
  cd -- "$potato_job" || potato_fail "$(uname -n) cannot enter $potato_job"
  find . ! -name . -prune ! -name artifacts -exec rm -rf -- {} + || potato_fail "$(uname -n) cannot empty $potato_job"
  potato_say kept "$potato_job/artifacts"
fi
potato_end 0
