#!/usr/bin/env python3
"""Real modules of torch through heddle.tune, beside what torch itself computes.

Usage: torch_test.py BIN_DIR [unittest arguments], in an environment with the package

torch is that of the environment, such as Debian's python3-torch. Without it, the tests are skipped.
"""
import pathlib
import sys
import tempfile
import unittest

sys.path.append(str(pathlib.Path(__file__).resolve().parent.parent / "cli"))
import programs  # takes BIN_DIR from the arguments

import numpy as np

import heddle

try:
    import torch
    from torch import nn
except ImportError as error:
    MISSING = f"{error}; apt install python3-torch"
else:
    MISSING = ""


def picture_net():
    class PictureNet(nn.Module):
        """A convolution, normalisation that is not trained on, and two dense layers."""

        def __init__(self):
            super().__init__()
            self.features = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2))
            self.classes = nn.Sequential(nn.Flatten(), nn.Linear(8 * 6 * 6, 16), nn.ReLU(), nn.Dropout(), nn.Linear(16, 5))

        def forward(self, image):
            return torch.softmax(self.classes(self.features(image)), dim=1)

    net = PictureNet()
    net(torch.randn(16, 3, 12, 12))  # statistics of the normalisation
    net.features[1].eval()
    return net


def two_inputs():
    class TwoInputs(nn.Module):
        def __init__(self):
            super().__init__()
            self.dense = nn.Linear(12, 7)

        def forward(self, left, right):
            joined = torch.cat([left, right], dim=1)
            return torch.tanh(self.dense(joined)), joined.sum(dim=1)

    return TwoInputs()


@unittest.skipIf(MISSING, MISSING)
class TorchTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        directory = tempfile.TemporaryDirectory()
        cls.addClassCleanup(directory.cleanup)
        cls.service = programs.Service(directory.name)
        cls.addClassCleanup(cls.service.stop)
        torch.manual_seed(1)

    def tuned(self, model, **options):
        return heddle.tune(model, server=self.service.address, trials=1, batch=1, compare=False, progress=False, **options)

    def expected(self, model, *inputs):
        """What torch computes, as the module is used: not trained."""
        modes = [(part, part.training) for part in model.modules()]
        with torch.no_grad():
            outputs = model.eval()(*inputs)
        for part, training in modes:
            part.training = training
        return [output.numpy() for output in (outputs if isinstance(outputs, tuple) else (outputs,))]

    def test_a_convolution_and_dense_layers(self):
        net = picture_net()
        module = self.tuned(net, example_inputs=torch.randn(2, 3, 12, 12))
        self.assertTrue(net.training)
        self.assertFalse(net.features[1].training)
        self.assertEqual([(spec.name, spec.shape) for spec in module.inputs], [("image", (2, 3, 12, 12))])
        self.assertEqual(module.job.info()["spec"]["name"], "PictureNet")
        image = torch.randn(2, 3, 12, 12)
        name = module.outputs[0].name
        # The memory of torch is used where it is, and torch takes the result where it is.
        outputs = module.run({"image": image}, copy=False)
        self.assertEqual(module.copied, ())
        shared = torch.from_dlpack(outputs[name])
        self.assertEqual(shared.data_ptr(), outputs[name].ctypes.data)
        np.testing.assert_allclose(outputs[name], *self.expected(net, image), rtol=1e-4, atol=1e-5)

    def test_several_inputs_and_outputs(self):
        net = two_inputs()
        left, right = torch.randn(3, 4), torch.randn(3, 8)
        module = self.tuned(net, example_inputs=(left, right))
        self.assertEqual([spec.name for spec in module.inputs], ["left", "right"])
        outputs = module.run({"right": right, "left": left})
        for spec, wanted in zip(module.outputs, self.expected(net, left, right), strict=True):
            np.testing.assert_allclose(outputs[spec.name], wanted, rtol=1e-4, atol=1e-5)

    def test_a_scripted_module(self):
        net = torch.jit.script(nn.Sequential(nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 2)))
        x = torch.randn(4, 6)
        module = self.tuned(net, example_inputs=x)
        np.testing.assert_allclose(module.run(x)[module.outputs[0].name], *self.expected(net, x), rtol=1e-4, atol=1e-5)

    def test_what_cannot_be_exported_says_so(self):
        class Own(nn.Module):
            def forward(self, x):
                return torch.linalg.svd(x)[1]

        with self.assertRaises(heddle.UsageError) as caught:
            self.tuned(Own(), example_inputs=torch.randn(3, 3))
        self.assertIn("torch.onnx cannot export the model", str(caught.exception))
        self.assertNotIn("\n", str(caught.exception))


if __name__ == "__main__":
    print(f"skipped: {MISSING}" if MISSING else f"torch {torch.__version__}, NumPy {np.__version__}", flush=True)
    unittest.main()
