"""Judges the OpenAPI document of a gateway and the answers that it describes.

Usage: openapi.py http://ADDRESS SOCKET

Operations with the tag of one of LOCAL are only at the API's Unix socket.
"""

import http.client
import json
import socket
import sys
import urllib.request

from jsonschema import Draft202012Validator
from openapi_spec_validator import OpenAPIV31SpecValidator

LOCAL = {"volumes", "changes"}


class Local(http.client.HTTPConnection):
    """Connection to a Unix socket."""

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(30)
        self.sock.connect(sys.argv[2])


def answer(path):
    with urllib.request.urlopen(sys.argv[1] + path, timeout=30) as response:
        return json.load(response)


def ask(method, path):
    connection = Local("localhost")
    connection.request(method, path, body=b"")
    response = connection.getresponse()
    return str(response.status), json.loads(response.read())


document = answer("/api/v1/openapi.json")
OpenAPIV31SpecValidator(document).validate()


def judge(operation, status, found):
    schema = operation["responses"][status]["content"]["application/json"]["schema"]
    # References point into the document's components.
    Draft202012Validator({**schema, "components": document["components"]}).validate(found)


read, local, refused = 0, 0, 0
for path, item in document["paths"].items():
    for method, operation in item.items():
        is_local = LOCAL & set(operation["tags"])
        if not is_local:
            assert method == "get", (method, path)
            judge(operation, "200", answer(path))
            status, found = ask("GET", path)
            assert status == "200", (path, status)
            judge(operation, status, found)
            read += 1
            print("valid:", path)
            continue
        local += 1
        if method == "get" and path in ["/api/v1/volumes", "/api/v1/volume-snapshots"]:
            status, found = ask("GET", path)
            assert status == "200", (path, found)
        elif path not in ["/api/v1/drain", "/api/v1/reload"]:
            # Without a body, and of things that do not exist: an error of the document.
            target = path.replace("{number}", "7").replace("{", "").replace("}", "")
            status, found = ask(method.upper(), target)
            assert int(status) >= 400, (method, target, found)
            assert found["error"]["message"] and found["error"]["next_step"], found
            refused += 1
        else:
            continue
        judge(operation, status, found)
        print("valid:", method, path, status)
assert read >= 10 and local >= 21 and refused >= 15, (read, local, refused)
