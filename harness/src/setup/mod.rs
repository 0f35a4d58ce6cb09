//! Development keys from a seeded trapdoor, and synthetic circuits.
