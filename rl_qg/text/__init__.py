"""What is known of words: tokens, spans, English word classes, types of questions."""
