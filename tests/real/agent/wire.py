"""Three network namespaces in a row, and a wire that the test can make slow, lossy, or cut.

    lab (192.168.77.2) -- nat: masquerades, lets nothing in -- wire -- server (198.51.100.1)

``lab`` has private addresses that the server's side has no route to, as a workstation in an office. The wire
is a pair of tun devices with a thread for each direction between them: unlike ``tc netem`` it needs nothing
of the kernel but tun, and a test can turn at it while packets fly. Loaded by path; needs root and Linux.
"""

from __future__ import annotations

import collections
import ctypes
import fcntl
import os
import random
import select
import struct
import subprocess
import threading
import time
from pathlib import Path

SERVER = "198.51.100.1"
OUTSIDE = "198.51.100.7"    #: how the lab looks to the server
LAB = "192.168.77.2"
_TUNSETIFF, _IFF_TUN_NO_PI = 0x400454CA, 0x1001
_CLONE_NEWNET = 0x40000000
_QUEUE_BYTES = 64_000       #: of a wire with a rate; what comes beyond is lost, as in a router

_NAT_RULES = """
table ip home {
  chain out { type nat hook postrouting priority 100; oifname "wan" masquerade; }
  chain through { type filter hook forward priority 0; policy drop;
    iifname "lan" accept
    iifname "wan" ct state established,related accept
  }
}
"""


class NoNamespaces(Exception):
    """Why there is no such network on this machine."""


def _run(*argv, **more):
    done = subprocess.run(argv, capture_output=True, text=True, timeout=30, **more)
    if done.returncode:
        raise NoNamespaces(f"{' '.join(argv)}: {done.stderr.strip()}")
    return done.stdout


def _tun(namespace, name):
    """The descriptor of a new tun device in a namespace. The thread that asks enters it; nobody else does."""
    found = []

    def enter():
        libc = ctypes.CDLL(None, use_errno=True)
        space = os.open(f"/run/netns/{namespace}", os.O_RDONLY)
        try:
            if libc.setns(space, _CLONE_NEWNET):
                raise OSError(ctypes.get_errno(), "setns")
            device = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
            fcntl.ioctl(device, _TUNSETIFF, struct.pack("16sH22x", name.encode(), _IFF_TUN_NO_PI))
            found.append(device)
        except OSError as error:
            found.append(error)
        finally:
            os.close(space)

    thread = threading.Thread(target=enter)
    thread.start()
    thread.join()
    if isinstance(found[0], OSError):
        raise NoNamespaces(f"no tun device: {found[0]}")
    return found[0]


class Wire:
    """Carries packets between two descriptors. Attributes may be set at any time.

    ``cut``: nothing passes, and nobody is told. ``delay_s`` one way, ``loss`` a share of 1, ``rate`` bytes a
    second or None.
    """

    def __init__(self, one, other):
        self.cut, self.delay_s, self.loss, self.rate = False, 0.0, 0.0, None
        self.lost = self.carried = 0
        self._ends = (one, other)
        self._stopped = threading.Event()
        self._threads = [threading.Thread(target=self._carry, args=pair, daemon=True)
                         for pair in ((one, other), (other, one))]
        for thread in self._threads:
            thread.start()

    def _carry(self, source, sink):
        flying = collections.deque()  # (due, packet), in order
        free_at, chance = 0.0, random.Random(7)
        while not self._stopped.is_set():
            wait = 0.2 if not flying else max(0.0, min(0.2, flying[0][0] - time.monotonic()))
            ready, _, _ = select.select([source], [], [], wait)
            now = time.monotonic()
            if ready:
                try:
                    packet = os.read(source, 4096)
                except OSError:
                    continue
                free_at = max(free_at, now)
                full = self.rate is not None and (free_at - now) * self.rate > _QUEUE_BYTES
                if self.cut or full or chance.random() < self.loss:
                    self.lost += 1
                else:
                    free_at += len(packet) / self.rate if self.rate else 0.0
                    flying.append((free_at + self.delay_s, packet))
            while flying and flying[0][0] <= time.monotonic():
                packet = flying.popleft()[1]
                if self.cut:
                    continue
                try:
                    os.write(sink, packet)
                    self.carried += len(packet)
                except OSError:
                    self.lost += 1

    def close(self):
        self._stopped.set()
        for thread in self._threads:
            thread.join(10)
        for end in self._ends:
            os.close(end)


class Network:
    """``wire`` is between the router and the server. Raises NoNamespaces where this cannot be built."""

    def __init__(self):
        if os.geteuid() != 0:
            raise NoNamespaces("network namespaces need root")
        mark = f"pt{os.getpid()}"
        self.lab, self.nat, self.server = (f"{mark}-{name}" for name in ("lab", "nat", "srv"))
        self.wire = None
        try:
            self._build(mark)
        except (NoNamespaces, OSError, subprocess.SubprocessError) as error:
            self.close()
            raise NoNamespaces(str(error)) from None

    def _build(self, mark):
        for space in (self.lab, self.nat, self.server):
            _run("ip", "netns", "add", space)
            _run("ip", "-n", space, "link", "set", "lo", "up")
        _run("ip", "link", "add", f"{mark}a", "netns", self.lab, "type", "veth", "peer", "name", "lan",
             "netns", self.nat)
        _run("ip", "-n", self.lab, "addr", "add", f"{LAB}/24", "dev", f"{mark}a")
        _run("ip", "-n", self.lab, "link", "set", f"{mark}a", "up")
        _run("ip", "-n", self.nat, "addr", "add", "192.168.77.1/24", "dev", "lan")
        _run("ip", "-n", self.nat, "link", "set", "lan", "up")
        _run("ip", "-n", self.lab, "route", "add", "default", "via", "192.168.77.1")
        self.wire = Wire(_tun(self.nat, "wan"), _tun(self.server, "net"))
        for space, device, address in ((self.nat, "wan", OUTSIDE), (self.server, "net", SERVER)):
            _run("ip", "-n", space, "addr", "add", f"{address}/24", "dev", device)
            _run("ip", "-n", space, "link", "set", device, "up")
        _run("ip", "netns", "exec", self.nat, "sysctl", "-qw", "net.ipv4.ip_forward=1")
        _run("ip", "netns", "exec", self.nat, "nft", "-f", "-", input=_NAT_RULES)

    @staticmethod
    def within(space, argv):
        """``argv`` as a command line in a namespace."""
        return ["ip", "netns", "exec", space, *map(str, argv)]

    def forget_connections(self):
        """As when the router is switched off and on: it knows no connection any more, and resets what comes."""
        rule = 'insert rule ip home through meta l4proto tcp reject with tcp reset'
        _run("ip", "netns", "exec", self.nat, "nft", rule)

    def remember(self):
        _run("ip", "netns", "exec", self.nat, "nft", "flush ruleset")
        _run("ip", "netns", "exec", self.nat, "nft", "-f", "-", input=_NAT_RULES)

    def mend(self):
        """The wire as it was at first."""
        self.wire.cut, self.wire.delay_s, self.wire.loss, self.wire.rate = False, 0.0, 0.0, None

    def close(self):
        if self.wire is not None:
            self.wire.close()
        for space in (self.lab, self.nat, self.server):
            if Path("/run/netns", space).exists():
                subprocess.run(["ip", "netns", "del", space], capture_output=True, timeout=30)
