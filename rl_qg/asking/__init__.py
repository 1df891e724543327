"""Questions and answers for any text: `QuestionGenerator`, its results, and the choice among them."""
