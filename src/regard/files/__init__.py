"""Files and directories: written whole or not at all, checked by a manifest, read line by line."""
