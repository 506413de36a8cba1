"""Judges the OpenAPI document of a gateway and the answers that it describes.

Usage: openapi.py http://ADDRESS
"""

import json
import sys
import urllib.request

from jsonschema import Draft202012Validator
from openapi_spec_validator import OpenAPIV31SpecValidator


def answer(path):
    with urllib.request.urlopen(sys.argv[1] + path, timeout=30) as response:
        return json.load(response)


document = answer("/api/v1/openapi.json")
OpenAPIV31SpecValidator(document).validate()
assert len(document["paths"]) >= 10, document["paths"]
for path, item in document["paths"].items():
    schema = item["get"]["responses"]["200"]["content"]["application/json"]["schema"]
    # References point into the document's components.
    judge = Draft202012Validator({**schema, "components": document["components"]})
    judge.validate(answer(path))
    print("valid:", path)
