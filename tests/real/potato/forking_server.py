"""Reads a config as Potato does, forks two workers after that, and serves with each on a port of its own.

The ports are written to the file that is named second. The workers end with the process that forked them.
"""

import os
import signal
import socket
import sys
import threading
import time

from potato.flask_server import create_app
from werkzeug.serving import make_server

app = create_app(sys.argv[1])
alive, held = os.pipe()
sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(2)]


def end_with_the_parent():
    os.read(alive, 1)
    os._exit(0)


for listening in sockets:
    if os.fork() == 0:
        os.close(held)
        threading.Thread(target=end_with_the_parent, daemon=True).start()
        port = listening.getsockname()[1]
        make_server("127.0.0.1", port, app, threaded=True, fd=listening.fileno()).serve_forever()

signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
with open(sys.argv[2] + ".new", "w") as file:
    file.write(" ".join(str(listening.getsockname()[1]) for listening in sockets))
os.rename(sys.argv[2] + ".new", sys.argv[2])
while True:
    time.sleep(60)
