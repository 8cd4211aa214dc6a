"""Between text and tokens: tokenizer, chat template, detokenizer, stop strings, sampling parameters and the sampler."""
