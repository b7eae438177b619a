"""What the tests in a browser share: the pages, and a service with jobs and trials that the browser looks at."""
import tempfile
import unittest

import browser
import planted

PAGES = ("/", "/jobs", "/jobs/j1", "/jobs/j1/tasks/1", "/jobs/j3", "/jobs/j3/cancel", "/jobs/j3/priority", "/submit", "/machines", "/records",
         "/records?key=0123456789abcdef", "/compare", "/compare?a=j1&b=j2", "/whatif")


# Ratio of the luminances of text and ground, for each piece of text (WCAG 2 asks for 4.5). A canvas turns every notation of a colour
# into numbers.
CONTRASTS = """
(() => {
  const context = Object.assign(document.createElement('canvas'), {width: 1, height: 1}).getContext('2d', {willReadFrequently: true});
  const channels = (colour) => {
    context.clearRect(0, 0, 1, 1);
    context.fillStyle = colour;
    context.fillRect(0, 0, 1, 1);
    return context.getImageData(0, 0, 1, 1).data;
  };
  const luminance = (colour) => {
    const [r, g, b] = [...channels(colour)].map((c) => c / 255).map((c) => c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const ground = (element) => {
    for (; element; element = element.parentElement) {
      const colour = getComputedStyle(element).backgroundColor;
      if (channels(colour)[3] === 255) return colour;
    }
    return 'white';
  };
  let worst = {ratio: 21, text: ''};
  const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walk.nextNode()) {
    const element = walk.currentNode.parentElement;
    if (!walk.currentNode.data.trim() || element.closest('title, .skip')) continue;
    const style = getComputedStyle(element);
    const [a, b] = [luminance(element.closest('svg') ? style.fill : style.color), luminance(ground(element))];
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (ratio < worst.ratio) worst = {ratio, text: walk.currentNode.data.trim().slice(0, 60)};
  }
  return worst;
})()
"""


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
