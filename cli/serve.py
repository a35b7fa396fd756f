"""``potato training serve``: the Training page, its API and the agent protocol."""

from __future__ import annotations

import argparse

from ..schema.errors import UsageError
from .common import add_config

HELP = """\
Serves the Training page, its API, and the agent protocol for `agent` backends. Without admin_api_key in the
config a key is made for this start and printed. Runs do not need the server: stopping it stops none.

  potato training serve
  potato training serve study/config.yaml -p 8010
  potato training serve --host 0.0.0.0 --allow-host training.example.org
  potato training serve --behind-proxy --prefix /study1     behind a reverse proxy
"""
#: It goes on for long: garbage is collected.
LASTING = True


def configure(parser: argparse.ArgumentParser) -> None:
    add_config(parser)
    parser.add_argument("--host", metavar="H", default="127.0.0.1", help="address to listen on; default: 127.0.0.1")
    parser.add_argument("-p", "--port", metavar="PORT", type=int, help="default: 8000; 0 for any that is free")
    parser.add_argument(
        "--allow-host", metavar="NAME", action="append", default=[],
        help="another name by which browsers reach this server; may be given several times",
    )
    parser.add_argument("--prefix", metavar="/PATH", help="serve below this path; default: $POTATO_URL_PREFIX")
    parser.add_argument(
        "--behind-proxy", action="store_true",
        help="believe the X-Forwarded headers of the one proxy in front; also: POTATO_PROXY_FIX=1",
    )


def run(args: argparse.Namespace) -> int:
    from ..server.serve import serve

    if args.port is not None and not 0 <= args.port <= 65535:
        raise UsageError(f"-p {args.port}: a port is a number from 0 to 65535")
    return serve(
        args.config, host=args.host, port=args.port, names=tuple(args.allow_host), prefix=args.prefix,
        behind_proxy=args.behind_proxy,
    )
