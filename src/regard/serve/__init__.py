"""An HTTP server for translation, with LibreTranslate's interface and our own, `/v1`."""
