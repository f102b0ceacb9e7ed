"""What a source folder or object prefix holds: names, listings, and digests pinned at first sight. Knows no pipeline."""
