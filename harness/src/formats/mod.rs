//! File formats: readers that trust nothing, and writers.
