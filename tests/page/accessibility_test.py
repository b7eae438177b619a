"""axe-core finds nothing serious or critical on any page, in light and in dark, on a screen and on a phone."""
import unittest

import axe
import browser
import shown

PAGES = shown.PAGES + ("/jobs/j3/pause", "/records?search=nothing")
# These answer with a refusal, which is a page, too.
REFUSALS = ("/nowhere", "/jobs/j999", "/jobs?before=x")
# The Content-Security-Policy takes no style from markup, but from scripts it does.
PLANTED_FAULTS = """document.querySelector('main').insertAdjacentHTML('beforeend', '<img src="/icon.svg"/><p>faint</p>');
document.querySelector('main > p:last-child').style.cssText = 'color: #bbb; background: #fff';"""


@unittest.skipUnless(browser.find(), "there is no chromium: apt-get install chromium")
@unittest.skipUnless(axe.find(), axe.MISSING)
class AccessibilityTest(shown.InBrowser):
    def test_no_grave_finding(self):
        all_found, fewest = [], 1000
        for options in (dict(width=1280, height=900), dict(width=1280, height=900, dark=True), dict(width=360, height=740, phone=True)):
            self.browser.show_as(**options)
            for page in PAGES + REFUSALS:
                self.browser.go(self.root + page)
                found, rules = axe.findings(self.browser)
                all_found += [f"{page} {options}: {one}" for one in found]
                fewest = min(fewest, rules)
        self.assertEqual(all_found, [], "\n".join(all_found))
        self.assertGreater(fewest, 10, "that many rules apply to every page")

    def test_faults_are_found(self):
        self.browser.show_as(1280, 900)
        self.browser.go(self.root + "/jobs")
        self.browser.evaluate(PLANTED_FAULTS)
        found, _ = axe.findings(self.browser)
        self.assertTrue(any("image-alt" in one for one in found), found)
        self.assertTrue(any("color-contrast" in one for one in found), found)


if __name__ == "__main__":
    unittest.main(verbosity=2)
