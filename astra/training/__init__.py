"""What the training stages need beside transformers and TRL: episodes, filling, distractors, demonstrations."""
