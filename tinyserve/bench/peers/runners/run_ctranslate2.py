"""CTranslate2 with INT8 weights and activations, converted once from the Hugging Face folder."""

import sys
from pathlib import Path

import ctranslate2
from talk import serve
from tokenizers import Tokenizer

source = Path(sys.argv[1])
converted = source.parent / "ctranslate2"
if not (converted / "model.bin").exists():
    ctranslate2.converters.TransformersConverter(str(source)).convert(str(converted), quantization="int8", force=True)
generator = ctranslate2.Generator(str(converted), compute_type="int8", intra_threads=int(sys.argv[2]))
tokenizer = Tokenizer.from_file(str(source / "tokenizer.json"))


def generate(ids, new):
    tokens = [tokenizer.id_to_token(token) for token in ids]
    steps = generator.generate_tokens(tokens, max_length=new, sampling_topk=1, end_token=[])
    for count, _ in enumerate(steps, 1):
        yield count
        if count == new:
            return


serve(generate)
