"""TaskD's Python side, where no TaskD is installed."""
