#!/usr/bin/env python3
"""Commands that documents show: each is one of its program, and has the options that it is shown with.

Usage: documents_test.py BIN_DIR [unittest arguments]
"""
import functools
import pathlib
import re
import shlex
import subprocess
import unittest

from programs import BIN, LIMIT_S

ROOT = pathlib.Path(__file__).resolve().parents[2]
DOCUMENTS = [ROOT / "README.md", ROOT / "deploy/README.md", ROOT / "python/README.md", *sorted((ROOT / "docs").glob("*.md"))]
PROGRAMS = ("heddle", "heddle-scheduler", "heddle-tracker", "heddle-worker", "heddle-sim", "heddle-ca")
FENCE = re.compile(r"^```.*?\n(.*?)^```", re.M | re.S)
QUOTED = re.compile(r"`([^`\n]+)`")
# A line of a shell: a prompt, variables that are set, and a command, perhaps in $(..).
LINE = re.compile(r"^ *(?:[\w-]*\$ +)?(?:sudo +)?(?:\w+=\S* +)*(?:\w+=\$\()?(heddle[a-z-]*) +(.*)$")
END = re.compile(r" +#| *[|;&)]| +>")
COMMANDS = re.compile(r"^(?:SUBCOMMANDS|Subcommands):\n((?:  .*\n|\n)+)", re.M)


def commands_in(text):
    """(program, words) of each command line in a document."""
    lines = [line for fence in FENCE.findall(text) for line in re.sub(r"\\\n", " ", fence).splitlines()]
    lines += QUOTED.findall(FENCE.sub("", text))
    for line in lines:
        found = LINE.match(line)
        if found and found[1] in PROGRAMS:
            yield found[1], words_of(found[2])


def words_of(text):
    """The words up to the end of the command. A quoted word may have what would end it."""
    for end in [match.start() for match in END.finditer(text)] + [len(text)]:
        try:
            return shlex.split(text[:end])
        except ValueError:  # within quotes
            continue
    return text.split()


@functools.cache
def help_of(program, *command):
    done = subprocess.run([str(BIN / program), *command, "--help"], capture_output=True, text=True, timeout=LIMIT_S)
    return done.stdout + done.stderr


def has(option, text):
    return re.search(rf"(?<![\w-]){re.escape(option)}(?![\w-])", text) is not None


def problems(program, words):
    """What is wrong with the command, one text each."""
    command, text = (), help_of(program)
    for word in words:
        option = re.match(r"--?[a-z][a-z-]*", word)
        if option:
            if not has(option[0], text):
                yield f"{' '.join((program, *command))} has no {option[0]}"
            continue
        listed = COMMANDS.search(help_of(program, *command))
        names = re.findall(r"^  (\w[\w-]*)", listed[1], re.M) if listed else []
        if word in names:
            command += (word,)
            text += help_of(program, *command)
        elif program == "heddle" and not command and re.fullmatch(r"[a-z]+", word):
            yield f"heddle has no command {word}"


class Documents(unittest.TestCase):
    def test_commands_and_options_are_there(self):
        found, count = [], 0
        for document in DOCUMENTS:
            for program, words in commands_in(document.read_text()):
                count += 1
                found += [f"{document.relative_to(ROOT)}: `{shlex.join([program, *words])}`: {problem}" for problem in problems(program, words)]
        print(f"{count} commands in {len(DOCUMENTS)} documents")
        self.assertGreater(count, 100)
        self.assertEqual(found, [])

    def test_what_is_wrong_is_found(self):
        text = "```\nyou$ A=1 heddle fetch j1 --outptu x  # --nothing\njob=$(heddle submit m --target 'a | b' --no-winograd)\n" \
               "heddle fetc j1\nheddle-scheduler: --not one\n```\nSee `heddle records retract --raeson x` and `heddle-worker --chekc`, `other --x`."
        commands = list(commands_in(text))
        self.assertEqual(commands[:2], [("heddle", ["fetch", "j1", "--outptu", "x"]), ("heddle", ["submit", "m", "--target", "a | b", "--no-winograd"])])
        self.assertEqual([problem for command in commands for problem in problems(*command)],
                         ["heddle fetch has no --outptu", "heddle has no command fetc", "heddle records retract has no --raeson", "heddle-worker has no --chekc"])


if __name__ == "__main__":
    unittest.main()
