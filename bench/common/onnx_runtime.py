"""ONNX Runtime as every benchmark sets it up: all graph optimisations, on the CPU, with a given number of threads."""


class Runtime:
    def __init__(self, threads):
        import onnxruntime

        self.ort = onnxruntime
        self._options = onnxruntime.SessionOptions()
        self._options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL
        self._options.intra_op_num_threads = threads
        self._options.inter_op_num_threads = 1

    def version(self):
        return f"ONNX Runtime {self.ort.__version__}"

    def session(self, path):
        return self.ort.InferenceSession(path, self._options, providers=["CPUExecutionProvider"])
