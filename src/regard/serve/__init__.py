"""An HTTP server for translations: LibreTranslate's interface, and one of our own with scores."""
