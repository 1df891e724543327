"""Words, spans and sentences of texts, English word classes, types of questions; tables and pages as text."""
