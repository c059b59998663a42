"""The paper's tables and figures, one file each: what it says, and what we find."""
