"""What the tests in a browser share: the pages, and a service with jobs and trials that the browser looks at."""
import tempfile
import unittest

import browser
import planted

PAGES = ("/", "/jobs", "/jobs/j1", "/jobs/j1/tasks/1", "/jobs/j3", "/jobs/j3/cancel", "/jobs/j3/priority", "/submit", "/machines", "/records",
         "/records?key=0123456789abcdef", "/compare", "/compare?a=j1&b=j2", "/whatif")


class InBrowser(unittest.TestCase):
    """Job 1 has so many trials; job 2 is done; jobs from 3 on are being imported."""
    TRIALS = 2000
    IMPORTING = 5

    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()

        def plant(database):
            planted.plant_trials(database, 1, cls.TRIALS)
            planted.plant_jobs(database, 2, 1, planted.DONE)
            planted.plant_jobs(database, 3, cls.IMPORTING, planted.IMPORTING)
        cls.scheduler = planted.Scheduler(cls.folder.name, plant)
        cls.root = f"http://{cls.scheduler.host}:{cls.scheduler.port}"
        cls.browser = browser.Browser()

    @classmethod
    def tearDownClass(cls):
        cls.browser.close()
        cls.scheduler.stop()
        cls.folder.cleanup()
