"""People judge questions: tasks for raters, the application that serves them, and the statistics of their ratings."""
