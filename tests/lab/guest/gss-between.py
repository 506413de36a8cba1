#!/usr/bin/env python3
"""Somebody in between who repeats or changes the calls of Kerberos users:
gss-between.py PORT TO-PORT WAY-FILE. The file has one word: `pass`; `repeat` sends
each call twice; `arguments` changes a bit in the arguments of about every fourth call,
`header` in its credential, `all` in the arguments of each call."""
import itertools
import socket
import struct
import sys
import threading

RPCSEC_GSS = 6
# Of all connections: a client that comes back over a new one is not where it was.
numbers = itertools.count(1)


def is_chosen(number):
    """About every fourth, in no rhythm: with one, the client's recovery, which repeats
    the same few calls until they succeed, would always meet the change at the same call."""
    return (number * 2654435761) % 2**32 < 2**30


def exactly(source, count):
    data = b""
    while len(data) < count:
        part = source.recv(count - len(data))
        if not part:
            raise EOFError
        data += part
    return data


def is_data_call(body):
    """A call with a credential of RPCSEC_GSS whose procedure is DATA."""
    if len(body) < 48:
        return False
    message, flavor = struct.unpack_from(">4xI16xI", body)
    return message == 0 and flavor == RPCSEC_GSS and struct.unpack_from(">I", body, 36)[0] == 0


def flipped(body, at):
    changed = bytearray(body)
    changed[at] ^= 1
    return bytes(changed)


def calls(client, server, way_file):
    try:
        while True:
            mark = exactly(client, 4)
            body = exactly(client, struct.unpack(">I", mark)[0] & 0x7FFFFFFF)
            with open(way_file) as file:
                way = file.read().strip()
            if not is_data_call(body):
                server.sendall(mark + body)
                continue
            chosen = is_chosen(next(numbers))
            if way == "all" or (way == "arguments" and chosen):
                # In front of the code that ends the call.
                body = flipped(body, len(body) - 60)
            elif way == "header" and chosen:
                # The sequence number of the credential.
                body = flipped(body, 43)
            server.sendall((mark + body) * (2 if way == "repeat" else 1))
    except (EOFError, OSError):
        server.close()


def replies(server, client):
    try:
        while data := server.recv(65536):
            client.sendall(data)
    except OSError:
        pass
    client.close()


def main():
    port, to_port, way_file = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
    listener = socket.create_server(("127.0.0.1", port))
    while True:
        client = listener.accept()[0]
        server = socket.create_connection(("127.0.0.1", to_port))
        threading.Thread(target=calls, args=(client, server, way_file), daemon=True).start()
        threading.Thread(target=replies, args=(server, client), daemon=True).start()


main()
