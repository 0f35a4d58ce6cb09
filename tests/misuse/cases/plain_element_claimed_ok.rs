use splitprover_misuse::*;

#[derive(Clone, Copy)]
pub struct Padded(u8, u32);

pub trait Named {}
impl Named for Padded {}

pub fn caller(padded: Padded) -> u32 {
    u32::from(padded.0) + padded.1
}

fn main() {}
