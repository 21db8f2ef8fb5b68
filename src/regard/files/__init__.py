"""Files: written whole or not at all, sealed by a manifest, read line by line."""
