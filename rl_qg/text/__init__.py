"""Words, spans and sentences of texts, their languages and case, English word classes, types of questions."""
