"""TaskD's adaptors, where no TaskD is installed."""
