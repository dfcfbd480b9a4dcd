"""What multilingual-e5-small expects and gives, whichever engine runs it."""

from __future__ import annotations

from services.embedder.model import Calibration, InputType

MODEL_ID = "multilingual-e5-small"
# Part of the model's training: without them its vectors are worse.
PROMPTS = {InputType.QUERY: "query: ", InputType.DOCUMENT: "passage: "}
# Means over Chinese and English question sets; see benchmarks/embed/calibrate.py.
CALIBRATION = Calibration(unrelated=0.83, relevant=0.865, exact=0.92)
