"""Validates the objects of a rendered file against the schemas of Kubernetes.

Prints one line for each: its name, a tab, and the reason if it is wrong.
"""

import sys

import kubernetes_validate
import yaml

# Kinds of other projects, of which the validator has no schema: they are checked for
# what each object has.
FOREIGN = {
    "ServiceMonitor", "PrometheusRule", "VolumeSnapshotClass", "VolumeSnapshot",
    "VolumeGroupSnapshotClass", "VolumeGroupSnapshot", "Kustomization",
}


def judge(document):
    if document["kind"] in FOREIGN:
        for key in ("apiVersion", "metadata"):
            if key not in document:
                return f"no {key}"
        return ""
    try:
        kubernetes_validate.validate(document, "1.34", strict=True)
    except Exception as error:  # any complaint is one of the manifest's
        return " ".join(str(error).split())[:300]
    return ""


with open(sys.argv[1], encoding="utf-8") as file:
    for document in yaml.safe_load_all(file):
        if document:
            name = f'{document["kind"]} {document["metadata"]["name"]}'
            print(f"{name}\t{judge(document)}")
