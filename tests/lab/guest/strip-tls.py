#!/usr/bin/env python3
"""Somebody in between who strips the offer of TLS from the server's replies:
strip-tls.py PORT TO-PORT. Everything else passes."""
import socket
import sys
import threading


def carry(source, target, strip):
    while data := source.recv(65536):
        target.sendall(data.replace(b"STARTTLS", b"NOTHING!") if strip else data)
    target.shutdown(socket.SHUT_WR)


def serve(client, port):
    server = socket.create_connection(("127.0.0.1", port))
    threading.Thread(target=carry, args=(client, server, False), daemon=True).start()
    threading.Thread(target=carry, args=(server, client, True), daemon=True).start()


listener = socket.create_server(("127.0.0.1", int(sys.argv[1])))
while True:
    serve(listener.accept()[0], int(sys.argv[2]))
