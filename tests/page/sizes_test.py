"""The pages in a headless Chromium for services of very different sizes: without a job, with one, with a thousand, and with a task of a
hundred thousand trials. No complaint in the console, readable colours, and nothing that sticks out on a phone."""
import tempfile
import time
import unittest

import browser
import planted
import shown

EVERYWHERE = ("/", "/jobs", "/machines", "/records", "/submit", "/compare", "/whatif")
# What is planted, pages besides those that are everywhere, and words that the first page of these, or the overview, then has.
SIZES = {
    "no job": (None, (), "no unfinished job"),
    "one job": (lambda database: planted.plant_jobs(database, 1, 1, planted.IMPORTING), ("/jobs/j1",), "model 1"),
    "a thousand jobs": (lambda database: (planted.plant_jobs(database, 1, 500, planted.DONE), planted.plant_jobs(database, 501, 500, planted.IMPORTING)),
                        ("/jobs?before=j501", "/jobs/j1000", "/compare?a=j1000&b=j1"), "model 500"),
    "a hundred thousand trials": (lambda database: planted.plant_trials(database, 1, planted.TRIALS),
                                  ("/jobs/j1/tasks/1", "/jobs/j1", "/records?key=0123456789abcdef"), "of 100000 trials"),
}


@unittest.skipUnless(browser.find(), "there is no chromium: apt-get install chromium")
class SizesTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.browser = browser.Browser()

    @classmethod
    def tearDownClass(cls):
        cls.browser.close()

    def look(self, address):
        """Each page is loaded once; a change of the screen draws it anew."""
        self.browser.complaints.clear()
        self.browser.show_as(1280, 900)
        self.browser.go(address)
        if self.browser.evaluate("document.getElementById('connection') !== null"):
            self.browser.wait_for("document.getElementById('connection').textContent === 'live'", 10)
        for dark in (False, True):
            self.browser.show_as(1280, 900, dark=dark)
            worst = self.browser.evaluate(shown.CONTRASTS)
            self.assertGreaterEqual(worst["ratio"], 4.5, f"{address} {'dark' if dark else 'light'}: {worst}")
        self.browser.show_as(360, 740, phone=True)
        self.assertLessEqual(self.browser.evaluate("document.documentElement.scrollWidth"), 360, address)
        self.assertEqual(self.browser.evaluate("window.x"), None, address)
        self.assertEqual(self.browser.complaints, [], address)
        return self.browser.evaluate("document.body.textContent")

    def test_every_size(self):
        for name, (plant, more, words) in SIZES.items():
            with self.subTest(name), tempfile.TemporaryDirectory() as folder:
                scheduler = planted.Scheduler(folder, plant)
                try:
                    begin = time.monotonic()
                    texts = {page: self.look(f"http://{scheduler.host}:{scheduler.port}{page}") for page in EVERYWHERE + more}
                    print(f"{name}: {len(texts)} pages in {time.monotonic() - begin:.1f} s", flush=True)
                    self.assertIn(words, texts[more[0] if more else "/"])
                    # The browser lets the server's streams go before that ends.
                    self.browser.go("about:blank")
                finally:
                    scheduler.stop()


if __name__ == "__main__":
    unittest.main(verbosity=2)
