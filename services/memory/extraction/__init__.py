"""Extraction: from turns to candidate facts and notes, by a language model or by rules."""
