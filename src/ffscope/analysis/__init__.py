"""What the stages compute, one module per question. None imports another: they meet in the study folder."""
