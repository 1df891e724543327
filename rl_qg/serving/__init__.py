"""The server: questions over HTTP, and a page to make them on."""
