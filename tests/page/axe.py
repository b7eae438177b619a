"""axe-core, the accessibility checker, run inside a page. It comes from a package of PyPI: tests/page/get_axe.sh fetches it."""
import json
import os
import pathlib

BUILD = pathlib.Path(__file__).resolve().parents[2] / "build/tests/axe"
MISSING = "axe-core is not here: run tests/page/get_axe.sh, or let HEDDLE_AXE name an axe.min.js"
# Findings of these kinds fail a test.
GRAVE = ("serious", "critical")


def find():
    """The script, or None."""
    named = os.environ.get("HEDDLE_AXE")
    if named:
        return pathlib.Path(named)
    return next(iter(sorted(BUILD.glob("lib/python*/site-packages/*/axe.min.js"))), None)


def findings(browser):
    """Grave findings in the page that the browser shows, one text for each element, and the number of rules that were checked."""
    browser.evaluate(find().read_text() + "; 0")
    result = browser.evaluate("""
        axe.run(document, {resultTypes: ['violations', 'passes']}).then((result) => JSON.stringify({
          rules: result.passes.length + result.violations.length,
          found: result.violations.flatMap((rule) => rule.nodes.map((node) => ({impact: rule.impact, rule: rule.id, text: node.failureSummary, html: node.html}))),
        }))""")
    result = json.loads(result)
    return [f"{one['rule']} ({one['impact']}): {one['html'][:200]} {one['text']}" for one in result["found"] if one["impact"] in GRAVE], result["rules"]
