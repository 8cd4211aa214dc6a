"""OpenVINO GenAI, from the GGUF file."""

import queue
import sys
import threading

import numpy as np
import openvino as ov
import openvino_genai as genai
from talk import serve

pipe = genai.LLMPipeline(sys.argv[1], "CPU", INFERENCE_NUM_THREADS=int(sys.argv[2]))


def generate(ids, new):
    came = queue.Queue()

    class Streamer(genai.StreamerBase):
        def write(self, tokens):
            for _ in range(len(tokens) if isinstance(tokens, (list, tuple)) else 1):
                came.put(1)
            return genai.StreamingStatus.RUNNING

        def end(self):
            pass

    config = genai.GenerationConfig(max_new_tokens=new, min_new_tokens=new, ignore_eos=True, do_sample=False)
    inputs = genai.TokenizedInputs(ov.Tensor(np.array([ids], np.int64)), ov.Tensor(np.ones((1, len(ids)), np.int64)))
    worker = threading.Thread(target=lambda: (pipe.generate(inputs, config, Streamer()), came.put(None)))
    worker.start()
    while came.get() is not None:
        yield 1
    worker.join()


serve(generate)
