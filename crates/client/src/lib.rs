//! Placeholder until the first commit.
