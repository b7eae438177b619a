"""Workers as pods. A class has a PodTemplate of the name heddle-worker-CLASS; an instance is a pod heddle-CLASS-NUMBER, made from it.
In the template, the word INSTANCE stands for CLASS-NUMBER: the worker's name, and that of the secret with its certificate.

Inside a pod, the service account is the identity (deploy/kubernetes/autoscaler.yaml says what it may do)."""

import json
import pathlib
import ssl
import urllib.parse

from .rules import LEAVING, PENDING, RUNNING
from .slurm import Source, SourceError
from .web import ask

LIMIT_S = 30
MOST_BYTES = 64 << 20
MOST_PODS = 500  # of one page of a list
ACCOUNT = "/var/run/secrets/kubernetes.io/serviceaccount"


class Kubernetes(Source):
    def __init__(self, settings, classes):
        """`settings`: "api" (default: that of the cluster) and "account", the folder with `token`, `ca.crt` and `namespace`."""
        self._account = pathlib.Path(settings.get("account", ACCOUNT))
        self._api = settings.get("api", "https://kubernetes.default.svc").rstrip("/")
        self._namespace = settings.get("namespace") or (self._account / "namespace").read_text().strip()
        authority = self._account / "ca.crt"
        self._tls = ssl.create_default_context(cafile=authority) if self._api.startswith("https:") else None

    def list(self, name):
        """number -> PENDING, RUNNING or LEAVING. Removes pods that have ended. Pods of others, which have no number, do not count."""
        instances, more = {}, ""
        while True:
            page = self._call("GET", f"pods?labelSelector=heddle-class%3D{name},heddle-number&limit={MOST_PODS}{more}")
            for pod in page.get("items", ()):
                metadata = pod["metadata"]
                number = int(metadata["labels"]["heddle-number"])
                phase = pod.get("status", {}).get("phase", "Pending")
                if "deletionTimestamp" in metadata:
                    instances[number] = LEAVING
                elif phase in ("Succeeded", "Failed"):
                    self._delete(metadata["name"])
                    instances[number] = LEAVING
                else:
                    instances[number] = RUNNING if phase == "Running" else PENDING
            token = page.get("metadata", {}).get("continue", "")
            if not token:
                return instances
            more = f"&continue={urllib.parse.quote(token, safe='')}"

    def start(self, name, numbers):
        """Stops at the first pod that is refused; the error says which ones were made before it."""
        template = self._call("GET", f"podtemplates/heddle-worker-{name}")["template"]
        for place, number in enumerate(numbers):
            pod = json.loads(json.dumps(template).replace("INSTANCE", f"{name}-{number}"))
            pod.update(apiVersion="v1", kind="Pod")
            metadata = pod.setdefault("metadata", {})
            metadata["name"] = f"heddle-{name}-{number}"
            metadata.setdefault("labels", {}).update({"heddle-class": name, "heddle-number": str(number)})
            try:
                self._call("POST", "pods", pod)
            except SourceError as error:
                raise SourceError(str(error), numbers[:place]) from error

    def drain(self, name, number):
        """The pod's preStop and SIGTERM reach the worker; it is killed after the template's terminationGracePeriodSeconds."""
        self._delete(f"heddle-{name}-{number}")

    def _delete(self, pod):
        self._call("DELETE", f"pods/{pod}")

    def _call(self, method, path, body=None):
        self.alive()
        url = f"{self._api}/api/v1/namespaces/{self._namespace}/{path}"
        headers = {"Accept": "application/json"}
        try:
            # Read each time, since the cluster renews it.
            headers["Authorization"] = "Bearer " + (self._account / "token").read_text().strip()
            data = None
            if body is not None:
                data = json.dumps(body).encode()
                headers["Content-Type"] = "application/json"
            status, text = ask(url, LIMIT_S, MOST_BYTES, method, data, headers, self._tls)
            if 200 <= status < 300:
                return json.loads(text)
        except (OSError, ValueError) as error:
            raise SourceError(f"{method} {path}: {error}") from error
        if method == "DELETE" and status == 404:
            return {}
        try:
            why = json.loads(text).get("message", "")
        except (ValueError, AttributeError):
            why = ""
        raise SourceError(f"{method} {path}: status {status} {why}".strip())
