"""llama.cpp on the same GGUF file."""

import sys

from llama_cpp import Llama
from talk import serve

llm = Llama(sys.argv[1], n_ctx=4608, n_batch=512, n_threads=int(sys.argv[2]), n_threads_batch=int(sys.argv[2]), verbose=False)


def generate(ids, new):
    llm.reset()
    for count, token in enumerate(llm.generate(ids, temp=0.0, reset=True), 1):
        yield token
        if count == new:
            return


serve(generate)
