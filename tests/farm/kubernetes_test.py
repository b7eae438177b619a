"""The manifests of deploy/kubernetes: valid by the API's schema, whole in themselves, and with options that the programs take.

Usage: kubernetes_test.py SOURCE_DIR BIN_DIR"""

import copy
import json
import pathlib
import re
import subprocess
import sys
import tempfile

import kubernetes_validate
import yaml

VERSION = "1.31"
# What docs/operating.md says that users need.
NEEDED = re.compile(r"Kubernetes (\d+)\.(\d+) or later is needed")
# Secrets that an operator makes, as the manifests say.
SECRETS = re.compile(r"heddle-(tracker|scheduler|operator|cpu-[0-9]+)$")


def documents(folder):
    for path in sorted(folder.glob("*.yaml")):
        for document in yaml.safe_load_all(path.read_text()):
            yield path.name, document


def pod_specs(document):
    """(name, spec) of each pod that comes of the document; of a template for the autoscaler, the pod of its worker 3."""
    name = document["metadata"]["name"]
    if document["kind"] in ("StatefulSet", "DaemonSet"):
        yield name, document["spec"]["template"]["spec"]
    if document["kind"] == "PodTemplate":
        yield name, pod_of(document)["spec"]


def pod_of(template):
    pod = json.loads(json.dumps(template["template"]).replace("INSTANCE", "cpu-3"))
    pod.update(apiVersion="v1", kind="Pod")
    pod["metadata"]["name"] = "heddle-cpu-3"
    return pod


def schema_problems(document, version=VERSION):
    whole = [document] + ([pod_of(document)] if document["kind"] == "PodTemplate" else [])
    for one in whole:
        try:
            kubernetes_validate.validate(one, version, strict=True)
        except kubernetes_validate.ValidationError as error:
            yield f"{one['kind']} {one['metadata']['name']}: {'.'.join(map(str, error.path))}: {error.message}"


def release_problems(operating, all_documents):
    """The documents fit the release that the text names, and not the one before: so neither the text nor the manifests move alone."""
    said = NEEDED.search(operating)
    if said is None:
        yield "docs/operating.md does not say which Kubernetes is needed"
        return
    major, minor = map(int, said.groups())
    for problem in (p for d in all_documents for p in schema_problems(d, f"{major}.{minor}")):
        yield f"not for Kubernetes {major}.{minor}, as docs/operating.md says: {problem}"
    if not any(True for d in all_documents for _ in schema_problems(d, f"{major}.{minor - 1}")):
        yield f"Kubernetes {major}.{minor - 1} is enough, and docs/operating.md says {major}.{minor}"


def option_problems(name, container, bin_folder):
    words = container["command"] + container.get("args", [])
    program = bin_folder / words[0]
    if not program.exists():
        if words[0] != "python3":
            yield f"{name}: there is no program {words[0]}"
        return
    known = set(re.findall(r"--[a-z-]+", subprocess.run([program, "--help"], capture_output=True, text=True, timeout=60).stdout))
    for word in words:
        if word.startswith("--") and word not in known:
            yield f"{name}: {words[0]} has no {word}"


def pod_problems(name, spec, maps, bin_folder):
    volumes = {volume["name"]: volume for volume in spec.get("volumes", ())}
    claims = {"data"} if "StatefulSet" in name else set()
    for volume in volumes.values():
        if "secret" in volume and not SECRETS.match(volume["secret"]["secretName"]):
            yield f"{name}: nobody makes the secret {volume['secret']['secretName']}"
        if "configMap" in volume and volume["configMap"]["name"] not in maps:
            yield f"{name}: there is no ConfigMap {volume['configMap']['name']}"
    for container in spec["containers"]:
        label = f"{name}/{container['name']}"
        for mount in container.get("volumeMounts", ()):
            if mount["name"] not in set(volumes) | claims:
                yield f"{label}: there is no volume {mount['name']}"
        if "livenessProbe" not in container or not container["resources"].get("requests"):
            yield f"{label}: it has no probe or asks for no resources"
        yield from option_problems(label, container, bin_folder)
        words = container.get("args", [])
        if "--notice" in words:
            notice_s = int(words[words.index("--notice") + 1].removesuffix("s"))
            if not notice_s < spec["terminationGracePeriodSeconds"] <= notice_s + 10:
                yield f"{label}: it is killed {spec['terminationGracePeriodSeconds']} s after SIGTERM, and counts on {notice_s} s"


def budget_problems(all_documents):
    def labels(*kinds):
        templates = [d["spec"]["template"] if "spec" in d else d["template"] for d in all_documents if d["kind"] in kinds]
        return [template["metadata"]["labels"] for template in templates]

    for document in all_documents:
        if document["kind"] != "PodDisruptionBudget":
            continue
        name, selector = document["metadata"]["name"], document["spec"]["selector"]
        wanted = set(selector.get("matchLabels", {}).items())
        wanted_values = {(e["key"], value) for e in selector.get("matchExpressions", ()) for value in e["values"]}

        def chosen(of):
            return any(wanted <= set(one.items()) and (not wanted_values or wanted_values & set(one.items())) for one in of)

        if chosen(labels("DaemonSet", "PodTemplate")):
            # Kubernetes counts what may be missing only of controllers with a scale, and refuses every eviction of other pods.
            yield f"PodDisruptionBudget {name}: it is for pods that no controller with a scale owns"
        elif not chosen(labels("StatefulSet")):
            yield f"PodDisruptionBudget {name}: it is for no pod"


def autoscaler_problems(source, all_documents):
    sys.path.insert(0, str(source / "deploy"))
    from autoscaler import loop

    text = next(d for d in all_documents if d["kind"] == "ConfigMap" and d["metadata"]["name"] == "heddle-autoscaler")["data"]["autoscaler.toml"]
    with tempfile.TemporaryDirectory() as folder:
        pathlib.Path(folder, "namespace").write_text("lab")
        config = pathlib.Path(folder, "autoscaler.toml")
        config.write_text(text.replace('kind = "kubernetes"', f'kind = "kubernetes"\napi = "http://127.0.0.1:1"\naccount = "{folder}"'))
        classes = loop.read_config(config).rules
    templates = {d["metadata"]["name"] for d in all_documents if d["kind"] == "PodTemplate"}
    for name in classes:
        if f"heddle-worker-{name}" not in templates:
            yield f"the class {name} of the autoscaler has no PodTemplate"
    role = next(d for d in all_documents if d["kind"] == "Role")
    may = {(resource, verb) for rule in role["rules"] for resource in rule["resources"] for verb in rule["verbs"]}
    needs = {("pods", "list"), ("pods", "create"), ("pods", "delete"), ("podtemplates", "get")}
    if may != needs:
        yield f"the autoscaler may {sorted(may)}, and needs {sorted(needs)}"


def all_problems(source, all_documents, bin_folder):
    maps = {d["metadata"]["name"] for d in all_documents if d["kind"] == "ConfigMap"}
    for document in all_documents:
        yield from schema_problems(document)
        for name, spec in pod_specs(document):
            yield from pod_problems(f"{document['kind']} {name}", spec, maps, bin_folder)
    yield from release_problems((source / "docs" / "operating.md").read_text(), all_documents)
    yield from budget_problems(all_documents)
    yield from autoscaler_problems(source, all_documents)


# What the checks must find: a change of a manifest, and words of the problem.
def planted(all_documents):
    def change(kind, words, edit):
        changed = copy.deepcopy(all_documents)
        edit(next(d for d in changed if d["kind"] == kind))
        return changed, words

    def container(document):
        return document["spec"]["template"]["spec"]["containers"][0]

    older = copy.deepcopy(all_documents)
    for document in older:
        if document["kind"] in ("DaemonSet", "PodTemplate"):
            del document.get("spec", document)["template"]["spec"]["containers"][0]["securityContext"]["appArmorProfile"]
    yield older, "is enough"
    yield change("StatefulSet", "replica", lambda d: d["spec"].update(replica=1))
    yield change("StatefulSet", "type", lambda d: d["spec"].update(replicas="one"))
    yield change("DaemonSet", "has no --no-such-option", lambda d: container(d)["args"].append("--no-such-option"))
    yield change("DaemonSet", "counts on", lambda d: d["spec"]["template"]["spec"].update(terminationGracePeriodSeconds=30))
    yield change("PodTemplate", "nobody makes the secret", lambda d: d["template"]["spec"]["volumes"][0]["secret"].update(secretName="x"))
    yield change("Role", "needs", lambda d: d["rules"][0].update(verbs=["*"]))
    yield change("PodDisruptionBudget", "for no pod", lambda d: d["spec"].update(selector={"matchLabels": {"app": "other"}}))
    yield change("PodDisruptionBudget", "with a scale", lambda d: d["spec"].update(selector={"matchLabels": {"app": "heddle-worker"}}))


def main():
    source, bin_folder = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
    found = [document for _, document in documents(source / "deploy" / "kubernetes")]
    problems = list(all_problems(source, found, bin_folder))
    for problem in problems:
        print(problem)
    missed = 0
    for changed, words in planted(found):
        if not any(words in problem for problem in all_problems(source, changed, bin_folder)):
            print(f"a planted problem is not found: {words}")
            missed += 1
    print(f"{len(found)} documents by the schema of Kubernetes {VERSION}, {len(problems)} problems")
    return 1 if problems or missed or len(found) < 12 else 0


if __name__ == "__main__":
    sys.exit(main())
