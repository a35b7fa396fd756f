"""A machine that we reach by a login: the system's ssh, one connection a run, scripts that answer in frames.

``connection`` is the way there as a value, ``talk`` one command over it, ``line`` the kept connection with the
forwarded socket. ``probe`` and ``gpus`` read what the host says of itself. Nothing here knows about runs;
``runtime/launchers/ssh.py`` puts it together.
"""
