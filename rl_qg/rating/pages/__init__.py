"""The web application that raters see."""
