"""An HTTP proxy that connects to whatever CONNECT names, or refuses it."""

import socket
import socketserver
import threading
from typing import Self


class ConnectProxy(socketserver.ThreadingTCPServer):
    """``targets`` are those that were connected to."""

    daemon_threads = True

    def __init__(self, status: str = "200 Connection established") -> None:
        super().__init__(("127.0.0.1", 0), _Tunnel)
        self.status, self.targets = status, list[str]()
        self.url = f"http://127.0.0.1:{self.server_address[1]}"

    def __enter__(self) -> Self:
        threading.Thread(target=self.serve_forever, args=[0.01]).start()
        return self

    def __exit__(self, *exc: object) -> None:
        self.shutdown()
        self.server_close()


class _Tunnel(socketserver.StreamRequestHandler):
    server: ConnectProxy

    def handle(self) -> None:
        method, target, _ = self.rfile.readline().decode().split()
        while self.rfile.readline().strip():
            pass
        assert method == "CONNECT"
        self.server.targets.append(target)
        self.wfile.write(f"HTTP/1.1 {self.server.status}\r\nVia: 1.1 proxy\r\n\r\n".encode())
        if self.server.status.startswith("200"):
            host, _, port = target.rpartition(":")
            with socket.create_connection((host, int(port))) as storage:
                answers = threading.Thread(target=_pass_on, args=[storage, self.request])
                answers.start()
                _pass_on(self.request, storage)
                answers.join()


def _pass_on(source: socket.socket, target: socket.socket) -> None:
    try:
        while data := source.recv(65536):
            target.sendall(data)
        target.shutdown(socket.SHUT_WR)
    except OSError:
        pass
