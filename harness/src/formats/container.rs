//! The container that `.zkey`, `.wtns` and `.r1cs` share: a magic, a version, and sections of (type, size, bytes).
//!
//! Only the table of sections is read here. It is taken strictly: no section twice, none beyond the end of the file, nothing
//! after the last. The order of sections is free, and types that a reader doesn't know are skipped.

use super::error::{FormatResult, Place};
use super::source::Source;

/// Containers with more sections are refused: the formats have at most ten, and the table must not cost memory.
const MAX_SECTIONS: u32 = 64;

/// Bytes before the first section.
const HEADER: u64 = 12;

/// Where a section's data lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Section {
    /// The type.
    pub kind: u32,
    /// Offset of its data from the beginning of the file.
    pub offset: u64,
    /// Bytes of data.
    pub size: u64,
}

/// What a container must be.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Format {
    pub(crate) magic: [u8; 4],
    pub(crate) version: u32,
    /// Names of the known section types, for messages.
    pub(crate) sections: &'static [(u32, &'static str)],
}

/// A container's table of sections.
#[derive(Clone, Debug)]
pub(crate) struct Container {
    format: &'static Format,
    sections: Vec<Section>,
    place: Place,
    end: u64,
}

impl Format {
    pub(crate) fn name(&self, kind: u32) -> &'static str {
        self.sections.iter().find(|(known, _)| *known == kind).map_or("unknown", |(_, name)| name)
    }

    fn kind(&self) -> String {
        String::from_utf8_lossy(&self.magic).into_owned()
    }
}

impl Container {
    /// Reads the table of sections.
    pub(crate) fn read(source: &(impl Source + ?Sized), format: &'static Format, place: &Place) -> FormatResult<Self> {
        let end = source.size();
        if end < HEADER {
            return Err(place.unexpected(end, "file size", format!("{HEADER} bytes or more"), end));
        }
        let magic: [u8; 4] = read_array(source, 0, place)?;
        if magic != format.magic {
            let found = format!("\"{}\"", magic.escape_ascii());
            return Err(place.unexpected(0, "magic", format!("\"{}\"", format.kind()), found));
        }
        let version = read_u32(source, 4, place)?;
        if version != format.version {
            return Err(place.unexpected(4, "version", format.version, version));
        }
        let count = read_u32(source, 8, place)?;
        if count > MAX_SECTIONS {
            return Err(place.unexpected(8, "number of sections", format!("at most {MAX_SECTIONS}"), count));
        }
        let mut sections: Vec<Section> = Vec::new();
        let mut at = HEADER;
        for index in 0..count {
            let left = end.saturating_sub(at);
            let Some(data) = at.checked_add(HEADER).filter(|&data| data <= end) else {
                let what = format!("header of section number {index} of {count}");
                return Err(place.unexpected(at, what, "12 bytes", format!("{left} to the end of the file")));
            };
            let kind = read_u32(source, at, place)?;
            let size = u64::from_le_bytes(read_array(source, at.saturating_add(4), place)?);
            let here = place.section(kind, format.name(kind));
            let Some(next) = data.checked_add(size).filter(|&next| next <= end) else {
                let left = end.saturating_sub(data);
                let expected = format!("at most the {left} bytes to the end of the file");
                return Err(here.unexpected(at.saturating_add(4), "section size", expected, size));
            };
            if let Some(first) = sections.iter().find(|section| section.kind == kind) {
                let expected = format!("one section of this type (the first is at {})", first.offset);
                return Err(here.unexpected(at, "section", expected, "another"));
            }
            sections.push(Section { kind, offset: data, size });
            at = next;
        }
        if at != end {
            return Err(place.unexpected(at, "end of the last section", format!("the end of the file, {end}"), at));
        }
        Ok(Self { format, sections, place: place.clone(), end })
    }

    /// All sections, in file order.
    pub(crate) fn sections(&self) -> &[Section] {
        &self.sections
    }

    /// What errors in a section of this type say.
    pub(crate) fn place(&self, kind: u32) -> Place {
        self.place.section(kind, self.format.name(kind))
    }

    /// The section of a type, if there is one.
    pub(crate) fn find(&self, kind: u32) -> Option<Section> {
        self.sections.iter().find(|section| section.kind == kind).copied()
    }

    /// The section of a type.
    pub(crate) fn section(&self, kind: u32) -> FormatResult<Section> {
        self.find(kind).ok_or_else(|| self.place(kind).unexpected(self.end, "section", "one", "none"))
    }

    /// The section of a type, which must have exactly `size` bytes. `why` says where the size comes from.
    pub(crate) fn section_of_size(&self, kind: u32, size: Option<u64>, why: &str) -> FormatResult<Section> {
        let section = self.section(kind)?;
        if Some(section.size) != size {
            let expected = size.map_or_else(|| "less than 2^64".to_owned(), |size| size.to_string());
            let expected = format!("{expected} bytes ({why})");
            return Err(self.place(kind).unexpected(section.offset, "section size", expected, section.size));
        }
        Ok(section)
    }

    /// Copies a section that is at most `limit` bytes long.
    pub(crate) fn copy(
        &self,
        source: &(impl Source + ?Sized),
        section: Section,
        limit: usize,
    ) -> FormatResult<Vec<u8>> {
        let place = self.place(section.kind);
        let size = usize::try_from(section.size).ok().filter(|&size| size <= limit).ok_or_else(|| {
            place.unexpected(section.offset, "section size", format!("at most {limit} bytes"), section.size)
        })?;
        let mut bytes = vec![0; size];
        source.read_at(&mut bytes, section.offset).map_err(|e| place.read_failed(e))?;
        Ok(bytes)
    }
}

fn read_array<const N: usize>(source: &(impl Source + ?Sized), at: u64, place: &Place) -> FormatResult<[u8; N]> {
    let mut bytes = [0; N];
    source.read_at(&mut bytes, at).map_err(|e| place.read_failed(e))?;
    Ok(bytes)
}

fn read_u32(source: &(impl Source + ?Sized), at: u64, place: &Place) -> FormatResult<u32> {
    Ok(u32::from_le_bytes(read_array(source, at, place)?))
}

/// Takes values one after the other from bytes, and knows where in the file it is.
#[derive(Clone, Debug)]
pub(crate) struct Cursor<'a> {
    bytes: &'a [u8],
    offset: u64,
    place: Place,
}

impl<'a> Cursor<'a> {
    /// `bytes` begin at `offset` of the file.
    pub(crate) fn new(bytes: &'a [u8], offset: u64, place: &Place) -> Self {
        Self { bytes, offset, place: place.clone() }
    }

    /// Offset in the file of the next byte.
    pub(crate) fn offset(&self) -> u64 {
        self.offset
    }

    /// Bytes left.
    pub(crate) fn left(&self) -> usize {
        self.bytes.len()
    }

    /// The next `count` bytes. `what` names the field.
    pub(crate) fn take(&mut self, count: usize, what: &str) -> FormatResult<&'a [u8]> {
        let Some((taken, rest)) = self.bytes.split_at_checked(count) else {
            let found = format!("{} to the end of the section", self.bytes.len());
            return Err(self.place.unexpected(self.offset, what, format!("{count} bytes"), found));
        };
        self.bytes = rest;
        self.offset = self.offset.saturating_add(count as u64);
        Ok(taken)
    }

    /// The next N bytes.
    pub(crate) fn array<const N: usize>(&mut self, what: &str) -> FormatResult<[u8; N]> {
        let mut array = [0; N];
        array.copy_from_slice(self.take(N, what)?);
        Ok(array)
    }

    /// The next u32.
    pub(crate) fn u32(&mut self, what: &str) -> FormatResult<u32> {
        Ok(u32::from_le_bytes(self.array(what)?))
    }

    /// The next u64.
    pub(crate) fn u64(&mut self, what: &str) -> FormatResult<u64> {
        Ok(u64::from_le_bytes(self.array(what)?))
    }

    /// Fails unless everything was taken.
    pub(crate) fn end(&self) -> FormatResult<()> {
        if self.bytes.is_empty() {
            return Ok(());
        }
        let found = format!("{} bytes more", self.bytes.len());
        Err(self.place.unexpected(self.offset, "end of the section", "nothing more", found))
    }
}
