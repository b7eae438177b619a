#!/usr/bin/env python3
"""The container recipe and the compose file, as far as they can be read without a container engine: instructions, files that are named,
references between services, and that the programs take the options.

Usage: container_test.py SOURCE_DIR BIN_DIR
"""
import pathlib
import re
import subprocess
import sys

INSTRUCTIONS = {"FROM", "COPY", "RUN", "WORKDIR", "VOLUME", "ENV", "EXPOSE", "CMD"}


def recipe_problems(text, root):
    stages, instructions = [], []
    text = re.sub(r"^#.*\n", "", text, flags=re.M)
    for line in re.sub(r"\\\n", " ", text).splitlines():
        if not line.strip():
            continue
        word, _, rest = line.partition(" ")
        instructions.append(word)
        if word not in INSTRUCTIONS:
            yield f"'{word}' is no instruction"
        if word == "FROM":
            name = re.search(r" AS (\S+)$", rest)
            stages.append(name.group(1) if name else "")
        if word == "COPY":
            stage = re.match(r"--from=(\S+) ", rest)
            if stage and stage.group(1) not in stages:
                yield f"COPY --from={stage.group(1)}: there is no such stage"
            if not stage and not (root / rest.split()[0]).exists():
                yield f"COPY {rest.split()[0]}: there is no such file"
        if word == "RUN":
            if subprocess.run(["sh", "-n", "-c", rest], stderr=subprocess.DEVNULL, timeout=60).returncode != 0:
                yield f"RUN {rest}: no shell command"
            for script in re.findall(r"\bdeploy/\S+\.sh", rest):
                if not (root / script).exists():
                    yield f"RUN: there is no {script}"
    if instructions[:1] != ["FROM"]:
        yield "it does not begin with FROM"


def command_problems(words, bin_folder):
    program = bin_folder / words[0]
    if words[0] == "sh":
        if subprocess.run(["sh", "-n", "-c", words[2]], timeout=60).returncode != 0:
            yield f"{words[2]}: no shell command"
        return
    if not program.exists():
        yield f"there is no program {words[0]}"
        return
    known = set(re.findall(r"--[a-z-]+", subprocess.run([program, "--help"], capture_output=True, text=True, timeout=60).stdout))
    for word in words:
        if word.startswith("--") and word not in known:
            yield f"{words[0]} has no {word}"


def compose_problems(document, folder, bin_folder):
    services = document["services"]
    for name, service in services.items():
        command = service["command"]
        yield from (f"{name}: {p}" for p in command_problems(command if isinstance(command, list) else command.split(), bin_folder))
        # Who is asked for its health serves it there.
        words = command.split() if isinstance(command, str) else command
        page = words[words.index("--http") + 1] if "--http" in words else None
        if "healthcheck" in service and service.get("environment", {}).get("HEALTH") != f"http://{page}/healthz":
            yield f"{name}: its health is asked for elsewhere than at {page}"
        if words[0].startswith("heddle-") and "healthcheck" not in service:
            yield f"{name}: nobody asks for its health"
        for other in service.get("depends_on", {}):
            if other not in services:
                yield f"{name} depends on {other}, which is no service"
        for volume in service.get("volumes", []):
            if volume.split(":")[0] not in document["volumes"]:
                yield f"{name}: there is no volume {volume}"
        build = service.get("build")
        if build and not (folder / build["context"] / build["dockerfile"]).exists():
            yield f"{name}: there is no {build['dockerfile']}"
        # Between containers, others are reached by the name of their service.
        for host in re.findall(r"(?:--tracker|--advertise) (\S+):\d+", command if isinstance(command, str) else ""):
            if host not in services:
                yield f"{name}: {host} is no service"
        for port in service.get("ports", []):
            if not port.startswith("127.0.0.1:"):
                yield f"{name}: port {port} is open to other machines"


def main():
    root, bin_folder = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
    folder = root / "deploy" / "container"
    assert list(recipe_problems("FROM a\nCOPY nothing /\nRIN x\nCOPY --from=b / /\nRUN if\n", root)), "finds nothing in a bad recipe"
    found = list(recipe_problems((folder / "Containerfile").read_text(), root))
    try:
        import yaml
    except ImportError:
        print("python3-yaml is missing: apt install python3-yaml; compose.yaml is not read")
    else:
        bad = yaml.safe_load("services: {a: {command: heddle-tracker --nothing, depends_on: {b: {}}, volumes: ['c:/c']}}\nvolumes: {}\n")
        assert len(list(compose_problems(bad, folder, bin_folder))) == 4, "finds too little in a bad compose file"
        found += compose_problems(yaml.safe_load((folder / "compose.yaml").read_text()), folder, bin_folder)
    print("\n".join(found))
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
