"""The dashboard and the alert rules, evaluated by Prometheus over a gateway that
runs: dashboard.py SITE DIRECTORY PORT. Ends with the number of queries on its
standard output, or with an error."""

import json
import os
import re
import subprocess
import sys
import time
import urllib.error
import urllib.parse
import urllib.request

SITE, DIRECTORY, PORT = sys.argv[1:]
DEPLOY = "deploy"
# Grafana's variables.
VARIABLES = {"$instance": ".*", "$__rate_interval": "10s", "$__range": "10s"}
START_SECONDS = 60
# A gateway without pools, RDMA and snapshots has data for these at least.
LEAST_WITH_DATA = 50


def ask(path, **parameters):
    url = f"http://127.0.0.1:{PORT}/api/v1/{path}?{urllib.parse.urlencode(parameters)}"
    try:
        with urllib.request.urlopen(url, timeout=30) as answer:
            return json.load(answer)["data"]
    except urllib.error.HTTPError as error:
        sys.exit(f"{parameters or path}: {error.read().decode()}")


def wait_for_samples():
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        try:
            found = ask("query", query="count_over_time(up[10s]) and up == 1")["result"]
            if found and float(found[0]["value"][1]) >= 4:
                return
        except OSError:
            pass
        time.sleep(0.5)
    sys.exit(f"Prometheus has no samples of {SITE}")


def queries():
    with open(f"{DEPLOY}/grafana/zgate.json", encoding="utf-8") as file:
        panels = json.load(file)["panels"]
    for panel in panels:
        for target in panel.get("targets", []):
            text = target["expr"]
            for variable, value in VARIABLES.items():
                text = text.replace(variable, value)
            yield text


def has_to_have_data(query, sampled):
    """Whether all series of a query have samples, and nothing in it drops any."""
    if re.search(r"[<>/]|histogram_quantile|\bop=~|\bstage=|\bclass=", query):
        return False
    names = re.findall(r"\b(?:zgate|zfs|process)_\w+", query)
    return all(name in sampled for name in names)


def judge():
    wait_for_samples()
    with urllib.request.urlopen(f"{SITE}/metrics", timeout=30) as answer:
        metrics = answer.read().decode()
    sampled = set(re.findall(r"^([a-zA-Z]\w*)", metrics, re.M))
    count = with_data = 0
    for query in queries():
        count += 1
        if ask("query", query=query)["result"]:
            with_data += 1
        elif has_to_have_data(query, sampled):
            sys.exit(f"no data: {query}")
    if with_data < LEAST_WITH_DATA:
        sys.exit(f"only {with_data} of {count} queries have data")
    rules = [rule for group in ask("rules")["groups"] for rule in group["rules"]]
    for rule in rules:
        if rule["health"] != "ok":
            sys.exit(f"alert {rule['name']}: {rule}")
    print(f"{count} queries, {with_data} with data, {len(rules)} alerts")


def main():
    config = f"{DIRECTORY}/prometheus.yml"
    with open(config, "w", encoding="utf-8") as file:
        json.dump({
            "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
            "rule_files": [os.path.abspath(f"{DEPLOY}/prometheus/zgate-alerts.yml")],
            "scrape_configs": [{
                "job_name": "zgate",
                "static_configs": [{"targets": [SITE.removeprefix("http://")]}],
            }],
        }, file)
    command = [
        "prometheus", f"--config.file={config}", f"--storage.tsdb.path={DIRECTORY}/prometheus",
        f"--web.listen-address=127.0.0.1:{PORT}",
    ]
    with open(f"{DIRECTORY}/prometheus.log", "wb") as log:
        prometheus = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        judge()
    finally:
        prometheus.kill()
        prometheus.wait()


main()
