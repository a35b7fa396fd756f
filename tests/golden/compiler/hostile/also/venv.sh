#!/bin/sh
# potato-training 1.2.3: run example on backend also
# config sha256 834c813231d242236ce9b474a64c76eb8ba6f101100a91187273a607a3a5973f
# Makes the interpreter that has the configured packages, once for all runs that want the same. stdin: a mark; its
# end is the end of the connection, and of all that was started here. What venv and pip say is passed on as lines
# "pip=...".
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

# model_training.backends.also.python, remote_dir
potato_python="$HOME"/"it's/py thon"
command -v -- "$potato_python" > /dev/null || potato_fail "$potato_python was not found on $(uname -n)"
# The packages are whole while COMPLETE names their interpreter as it is now, and nothing of the list FILES is gone.
# What cleans a scratch disk takes old files and links. Names are enough, and cost no look at each file.
potato_venv="$HOME"/"-rf \`id\` #1/venvs/054cc78dc200d70b366a0389aeb166aa"
potato_stamp() {
  "$potato_python" -c 'import os, sys; print(os.path.realpath(sys.executable), sys.version.split()[0])'
}
potato_names() ( # all but compiled code, which comes and goes
  cd -- "$potato_venv" && find . -name __pycache__ -prune -o ! -type d -print | LC_ALL=C sort
)
potato_gone() { [ ! -s "$potato_venv/FILES" ] || potato_names | LC_ALL=C comm -13 - "$potato_venv/FILES"; }
potato_whole_venv() { # STAMP
  [ -s "$potato_venv/COMPLETE" ] && [ -s "$potato_venv/FILES" ] &&
    [ "$(cat -- "$potato_venv/COMPLETE")" = "$1" ] && [ -z "$(potato_gone)" ]
}
potato_private() { # DIRECTORY: this account's alone, since what lies in it is run; default ACLs do not ask umask
  [ -d "$1" ] || { mkdir -p -- "$1" && chmod 700 -- "$1"; } || potato_fail "$(uname -n) cannot make $1"
  chmod go-w -- "$1" 2> /dev/null || potato_fail "$1 on $(uname -n) is another account's: remote_dir must be one's own"
}
potato_now=$(potato_stamp) || potato_fail "$potato_python does not run on $(uname -n)"
potato_private "${potato_venv%/*}"
potato_private "$potato_venv"

# One at a time: the lock is descriptor 9's, and ends with this shell, however it ends. 3 is our stdin.
exec 3<&0 9>> "$potato_venv.lock"
"$potato_python" - << 'LOCK' ||
import fcntl, os, select, sys
while True:
    try:
        fcntl.flock(9, fcntl.LOCK_EX | fcntl.LOCK_NB)
        break
    except BlockingIOError:
        if select.select([3], [], [], 0.5)[0] and not os.read(3, 4096):
            sys.exit(1)
LOCK
  potato_fail "$(uname -n) cannot lock $potato_venv.lock"
if potato_whole_venv "$potato_now"; then
  potato_say python "$potato_venv/bin/python"
  potato_end 0
fi
potato_first=$(potato_gone | head -n 1)
[ -z "$potato_first" ] || potato_say pip "installed packages have lost files, such as $potato_first: made anew"

# A builder that prints nothing would not notice that nobody listens any more: this one listens for it.
potato_attended() { # COMMAND...
  "$potato_python" -c '
import os, select, signal, subprocess, sys
child = subprocess.Popen(sys.argv[1:], stdin=subprocess.DEVNULL, start_new_session=True)
while child.poll() is None:
    if select.select([3], [], [], 0.2)[0] and not os.read(3, 4096):
        for number, patience in ((signal.SIGTERM, 5), (signal.SIGKILL, None)):
            try:
                os.killpg(child.pid, number)
                child.wait(patience)
            except (OSError, subprocess.TimeoutExpired):
                pass
        sys.exit(1)
sys.exit(child.returncode and 1)' "$@"
}

# Built where it stays, since a venv's scripts hold its path. The list comes from beside it, and COMPLETE last.
potato_make() {
  rm -rf -- "$potato_venv"
  potato_attended "$potato_python" -m venv --system-site-packages -- "$potato_venv" || return 1

  # A venv's interpreter makes venvs that show its base's packages and not its own: a .pth file adds those.
  "$potato_python" - "$potato_venv/bin/python" << 'BASE' || return 1
import os, subprocess, sys, sysconfig
if sys.prefix != sys.base_prefix:
    ask = "import sysconfig; print(sysconfig.get_path('purelib'))"
    there = subprocess.check_output([sys.argv[1], "-c", ask], universal_newlines=True).strip()
    paths = dict.fromkeys(sysconfig.get_path(name) for name in ("purelib", "platlib"))
    with open(os.path.join(there, "base_packages.pth"), "w") as file:
        file.write("".join(path + "\n" for path in paths))
BASE

  # model_training.backends.also.packages
  potato_attended "$potato_venv/bin/python" -m pip install \
    --disable-pip-version-check --no-input --progress-bar off -- \
    "x @ file:///a b/it's.whl" "y[z]>=1 ; python_version > '3.9'" || return 1
  potato_names > "$potato_venv.files" && mv -- "$potato_venv.files" "$potato_venv/FILES" || return 1
  printf '%s\n' "$potato_now" > "$potato_venv/COMPLETE.tmp" || return 1
  mv -- "$potato_venv/COMPLETE.tmp" "$potato_venv/COMPLETE"
}
potato_make 2>&1 < /dev/null | while IFS= read -r potato_line; do potato_say pip "$potato_line"; done
[ -f "$potato_venv/COMPLETE" ] || potato_fail "the packages could not be installed on $(uname -n)"
potato_say python "$potato_venv/bin/python"
potato_end 0
