"""The documentation site: pages that are made from the contracts and the measurements."""
