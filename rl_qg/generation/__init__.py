"""From passages with answers to questions: prompts, decoding, the generator, candidate answers."""
