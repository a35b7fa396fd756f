#!/bin/sh
# potato-training 1.2.3: run example on backend gpu-server
# config sha256 db5c853928cc3ba0a2f7776cb5950c8853cc93112a4b58136f21e8e94b96b5d4
# Looks at the host and changes nothing but for making remote_dir and a directory for the socket. stdin: a mark,
# the hash of the code, the directory of the socket or "-", names of the modules to look for.
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

# A copy of the code is whole when each file of its list (lines "SIZE NAME", written last) is there with its size:
# what cleans a scratch disk takes old files and leaves their directories.
potato_whole() { # DIRECTORY LIST
  [ -s "$2" ] && [ "$(potato_sizes "$1" "$2")" = "$(cat -- "$2")" ]
}
potato_sizes() ( # DIRECTORY LIST: as they are now
  unset BLOCK_SIZE LS_BLOCK_SIZE QUOTING_STYLE
  cd -- "$1" && sed 's/^[0-9]* //' "$2" | LC_ALL=C xargs ls -ln 2> /dev/null | awk '{ print $5, $NF }'
)

potato_private() { # DIRECTORY: this account's alone, since what lies in it is run; default ACLs do not ask umask
  [ -d "$1" ] || { mkdir -p -- "$1" && chmod 700 -- "$1"; } || potato_fail "$(uname -n) cannot make $1"
  chmod go-w -- "$1" 2> /dev/null || potato_fail "$1 on $(uname -n) is another account's: remote_dir must be one's own"
}

IFS= read -r potato_code || potato_fail "nobody said which code to look for"
IFS= read -r potato_socket || potato_fail "nobody named a socket"
potato_say host "$(uname -n)"
potato_say home "$HOME"

# model_training.backends.gpu-server.remote_dir
potato_root="$HOME"/'.cache/potato-training'
mkdir -p -- "$potato_root" && [ -w "$potato_root" ] || potato_fail "$(uname -n) cannot write to $potato_root"
for potato_folder in "$potato_root/code" "$potato_root/jobs" "$potato_root/venvs"; do
  [ ! -d "$potato_folder" ] || potato_private "$potato_folder"
done
potato_say root "$potato_root"
potato_say free_kb "$(df -Pk -- "$potato_root" | awk 'END { print $4 }')"
potato_place=$potato_root/code/$potato_code
! potato_whole "$potato_place" "$potato_place/$potato_code" || potato_say code "$potato_code"
potato_job="$HOME"/'.cache/potato-training/jobs/example'
[ ! -d "$potato_job" ] || potato_say job "$potato_job"

# The private directory of the forwarded socket: ssh makes the socket in it.
case $potato_socket in
  /tmp/p-*/*) potato_fail "no such socket" ;;
  /tmp/p-*) mkdir -m 700 -- "$potato_socket" || potato_fail "$(uname -n) cannot make $potato_socket" ;;
esac

# model_training.backends.gpu-server.python
potato_python='/opt/conda/bin/python3'
if command -v -- "$potato_python" > /dev/null &&
  potato_version=$("$potato_python" -c 'import sys; print("%d.%d.%d" % sys.version_info[:3])'); then
  potato_say python "$potato_version $(command -v -- "$potato_python")"
fi
if [ -z "${potato_version-}" ] || ! "$potato_python" -c 'import sys; sys.exit(sys.version_info < (3, 8))'; then
  for potato_other in python3 python3.8 python3.9 python3.10 python3.11 python3.12 python3.13 python3.14 \
    "$HOME"/miniconda3/bin/python "$HOME"/anaconda3/bin/python /opt/conda/bin/python3 /usr/local/bin/python3; do
    potato_other=$(command -v -- "$potato_other") || continue
    potato_version=$("$potato_other" -c 'import sys; print("%d.%d.%d" % sys.version_info[:3])') || continue
    potato_say other "$potato_version $potato_other"
  done
fi

# A worker that was started has its interpreter and its GPU.
[ ! -f "$potato_job/worker.json" ] || {
  potato_say worker started
  potato_end 0
}

# model_training.backends.gpu-server.gpus
potato_limited() { # SECONDS COMMAND...: a broken driver or a busy controller can hang a command for good
  if command -v timeout > /dev/null; then
    timeout -k 5 "$@"
  else
    shift
    "$@"
  fi
}
potato_lines() { sed "s/^/$1=/"; } # KEY: each line of stdin
potato_say gpus 'auto'
if command -v nvidia-smi > /dev/null; then
  potato_smi=$(potato_limited 20 nvidia-smi --format=csv,noheader,nounits \
    --query-gpu=index,uuid,name,memory.total,memory.free,utilization.gpu 2>&1)
  potato_code=$?
  potato_say nvidia_smi "$potato_code"
  printf '%s\n' "$potato_smi" | potato_lines gpu
  [ "$potato_code" -ne 0 ] || potato_limited 20 nvidia-smi -L 2>&1 | potato_lines device
else
  potato_say nvidia_smi absent
fi

# The modules, and whether torch, when it is among them, can compute on each of the GPUs.
IFS= read -r potato_modules || potato_fail "nobody said which modules to look for"
CUDA_DEVICE_ORDER=PCI_BUS_ID "$potato_python" - "$potato_modules" << 'MODULES' ||
import importlib.util, sys
for name in sys.argv[1].split():
    print("module=%s %s" % (name, "there" if importlib.util.find_spec(name) else "missing"), flush=True)
if "torch" in sys.argv[1].split() and importlib.util.find_spec("torch"):
    import torch
    print("torch=%s %s" % (torch.__version__, " ".join(torch.cuda.get_arch_list())))
    for n in range(torch.cuda.device_count()):
        try:
            one = torch.ones(2, 2, device="cuda:%d" % n)
            (one @ one).sum().item()
            print("kernels=%d there" % n)
        except Exception as error:
            words = (str(error) or type(error).__name__).splitlines()[0]
            print("kernels=%d missing sm_%d%d %s" % (n, *torch.cuda.get_device_capability(n), words))
MODULES
  potato_say modules_failed "$?"
potato_say time "$(date +%s)" # last, so that nothing lies between this and its being read
potato_end 0
