"""Files and directories: written completely or not at all, checked by a manifest, read by lines."""
