"""The page in a headless Chromium: no complaint in the console, live changes, nothing that sticks out on a phone, readable colours,
reachable by keyboard, useful without scripts."""
import unittest

import browser
import shown

@unittest.skipUnless(browser.find(), "there is no chromium: apt-get install chromium")
class BrowserTest(shown.InBrowser):
    TRIALS = 20_000
    IMPORTING = 40

    def setUp(self):
        self.browser.complaints.clear()
        self.browser.show_as(1280, 900)
        self.browser.call("Emulation.setScriptExecutionDisabled", value=False)

    def test_no_complaints(self):
        for page in shown.PAGES:
            self.browser.go(self.root + page)
            if self.browser.evaluate("document.getElementById('connection') !== null"):
                self.browser.wait_for("document.getElementById('connection').textContent === 'live'", 5)
            self.assertEqual(self.browser.evaluate("window.x"), None)
            self.assertEqual(self.browser.complaints, [], page)

    def test_changes_are_shown_while_one_looks(self):
        self.browser.go(self.root + "/jobs/j5")
        self.browser.wait_for("document.getElementById('connection').textContent === 'live'", 5)
        self.browser.evaluate("document.querySelector('nav a').focus(); window.same = true")
        self.assertEqual(self.scheduler.act("j5", "pause")[0], 303)
        took = self.browser.wait_for("document.getElementById('facts').textContent.includes('paused')", 10)
        print(f"the change was shown after {took:.2f} s")
        self.assertLess(took, 2)
        self.assertTrue(self.browser.evaluate("window.same"), "the page was not loaded again")
        self.assertEqual(self.browser.evaluate("document.activeElement.textContent"), "Overview", "the focus stays")
        # The focus stays also where a part was replaced around it.
        self.browser.evaluate("[...document.querySelectorAll('.button')].find((e) => e.textContent === 'cancel').focus()")
        self.assertEqual(self.scheduler.act("j5", "resume")[0], 303)
        self.browser.wait_for("!document.getElementById('facts').textContent.includes('paused')", 10)
        self.assertEqual(self.browser.evaluate("document.activeElement.textContent"), "cancel")
        self.assertEqual(self.browser.complaints, [])

    def test_a_job_is_cancelled_by_hand(self):
        self.browser.go(self.root + "/jobs/j6/cancel")
        self.browser.loaded = False
        self.browser.evaluate("document.getElementById('reason').value = 'not needed'; document.querySelector('main form button').click()")
        self.browser.wait_for("location.pathname === '/jobs/j6' && document.body && document.body.textContent.includes('cancelled')", 10)
        self.assertIn("not needed", self.browser.evaluate("document.body.textContent"))
        self.assertEqual(self.browser.complaints, [])

    def test_nothing_sticks_out_on_a_phone(self):
        self.browser.show_as(360, 740, phone=True)
        for page in shown.PAGES:
            self.browser.go(self.root + page)
            self.assertLessEqual(self.browser.evaluate("document.documentElement.scrollWidth"), 360, page)

    def test_colours_are_readable(self):
        for dark in (False, True):
            self.browser.show_as(1280, 900, dark=dark)
            for page in shown.PAGES:
                self.browser.go(self.root + page)
                worst = self.browser.evaluate(shown.CONTRASTS)
                self.assertGreaterEqual(worst["ratio"], 4.5, f"{page} {'dark' if dark else 'light'}: {worst}")

    def test_the_keyboard_reaches_everything(self):
        self.browser.go(self.root + "/jobs")
        self.browser.press("Tab", 9)
        self.assertEqual(self.browser.evaluate("document.activeElement.textContent"), "Skip to the content")
        self.assertGreaterEqual(self.browser.evaluate("document.activeElement.getBoundingClientRect().left"), 0, "it is seen when it has the focus")
        reached = set()
        for _ in range(12):
            self.browser.press("Tab", 9)
            reached.add(self.browser.evaluate("document.activeElement.textContent.slice(0, 20)"))
        self.assertTrue({"Overview", "Jobs", "Machines", "Records", "j42"} <= reached, reached)

    def test_it_is_useful_without_scripts(self):
        self.browser.call("Emulation.setScriptExecutionDisabled", value=True)
        self.browser.go(self.root + "/")
        text = self.browser.call("DOM.getDocument", depth=-1)
        self.assertIn("j42", str(text))


if __name__ == "__main__":
    unittest.main(verbosity=2)
