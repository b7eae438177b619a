#!/usr/bin/env python3
"""Migrations of the store's schema are never edited once they have landed: a database that was made by the earlier text would keep it.

tests/house/migrations.txt has the digest of each migration, without comments and spaces. A new migration comes at the end of its file;
HEDDLE_BLESS=1 adds its digest. A line that is there already is changed by hand, and only where no database can have the old text.

Usage: migrations.py ROOT | --self-test
"""
import hashlib
import os
import pathlib
import re
import sys

FILES = ("scheduler/store/sqlite_schema.cc", "scheduler/store/postgres/postgres_schema.cc")
DIGESTS = "tests/house/migrations.txt"
WAY_OUT = "add a migration at the end instead"


def digests(path, text):
    lines = []
    for number, sql in enumerate(re.findall(r'R"sql\((.*?)\)sql"', text, re.DOTALL)):
        plain = "".join(re.sub(r"--[^\n]*", "", sql).split())
        lines.append(f"{path} {number} {hashlib.sha256(plain.encode()).hexdigest()[:16]}")
    return lines


def problems(known, found):
    """`known` and `found`: lines of the digests."""
    for line in known:
        if line not in found:
            path, number, _ = line.split()
            yield f"{path}: migration {number} is not what it was when it landed; {WAY_OUT}"
    names = {tuple(line.split()[:2]) for line in known}
    for line in found:
        path, number, _ = line.split()
        if (path, number) not in names:
            yield f"{path}: migration {number} is new; HEDDLE_BLESS=1 python3 tests/house/migrations.py . notes it"


def self_test():
    sql = 'x = {R"sql(\nCREATE TABLE a(b);  -- c\n)sql", R"sql(\nCREATE TABLE d(e);\n)sql"};'
    known = digests("f.cc", sql)
    cases = (
        (sql, ()),
        (sql.replace("-- c", "-- another remark").replace("a(b)", "a( b )"), ()),
        (sql.replace("a(b)", "a(b, f)"), ("migration 0 is not what it was",)),
        (sql.replace('R"sql(\nCREATE TABLE a(b);  -- c\n)sql", ', ""), ("migration 0 is not", "migration 1 is not")),
        (sql.replace("};", ', R"sql(DROP TABLE a)sql"};'), ("migration 2 is new",)),
    )
    for text, words in cases:
        got = list(problems(known, digests("f.cc", text)))
        if len(got) != len(words) or any(word not in problem for word, problem in zip(words, got)):
            sys.exit(f"self-test: {words} expected, {got} found")


def main():
    if sys.argv[1:] == ["--self-test"]:
        return self_test()
    root = pathlib.Path(sys.argv[1])
    known = (root / DIGESTS).read_text().splitlines()
    found = [line for path in FILES for line in digests(path, (root / path).read_text())]
    if len(found) < 14:
        sys.exit(f"{len(found)} migrations found: does this test still find them?")
    if os.environ.get("HEDDLE_BLESS"):
        names = {tuple(line.split()[:2]) for line in known}
        new = [line for line in found if tuple(line.split()[:2]) not in names]
        (root / DIGESTS).write_text("".join(f"{line}\n" for line in known + new))
        known += new
    all_problems = list(problems(known, found))
    for problem in all_problems:
        print(problem)
    return 1 if all_problems else 0


if __name__ == "__main__":
    sys.exit(main())
