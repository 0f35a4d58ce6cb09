//! A strict, streaming reader of the little JSON that snarkjs writes.
//!
//! It follows what is expected, from the first byte on, and never builds a tree: there is no recursion for nested brackets to
//! exhaust, and nothing is kept that wasn't asked for. Text it takes is short (digits, names), so a long string, or a long
//! run of spaces, is refused before it takes time or memory.

use std::io::{self, BufRead};

use crate::formats::error::{FormatError, FormatResult, Place};

/// No name or number of the formats is as long: q has 115 digits.
const MAX_TEXT: usize = 160;
/// No indentation is as deep.
const MAX_SPACE: u32 = 4096;

/// Where the reader is in the text.
pub(super) struct Reader<R> {
    input: R,
    at: u64,
    place: Place,
}

/// Between the items of an array or the fields of an object: what comes next.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Next {
    Item,
    End,
}

impl<R: BufRead> Reader<R> {
    pub(super) fn new(input: R, place: Place) -> Self {
        Self { input, at: 0, place }
    }

    /// An error at the current offset.
    pub(super) fn error(
        &self,
        what: impl Into<String>,
        expected: impl std::fmt::Display,
        found: impl std::fmt::Display,
    ) -> FormatError {
        self.place.unexpected(self.at, what, expected, found)
    }

    /// Bytes read so far.
    pub(super) fn offset(&self) -> u64 {
        self.at
    }

    /// What errors say about the place.
    pub(super) fn place(&self) -> &Place {
        &self.place
    }

    /// An error at the current offset: the text belongs to another curve.
    pub(super) fn other_curve(&self, found: impl Into<String>) -> FormatError {
        self.place.other_curve(self.at, found)
    }

    fn peek(&mut self) -> FormatResult<Option<u8>> {
        loop {
            match self.input.fill_buf() {
                Ok(bytes) => return Ok(bytes.first().copied()),
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(self.place.io("cannot read", e)),
            }
        }
    }

    fn bump(&mut self) {
        self.input.consume(1);
        self.at = self.at.saturating_add(1);
    }

    /// The next byte that isn't white space.
    fn next_token(&mut self) -> FormatResult<Option<u8>> {
        for _ in 0..MAX_SPACE {
            match self.peek()? {
                Some(b' ' | b'\n' | b'\r' | b'\t') => self.bump(),
                other => return Ok(other),
            }
        }
        Err(self.error("white space", format!("less than {MAX_SPACE} bytes in a row"), "more"))
    }

    fn describe(byte: Option<u8>) -> String {
        byte.map_or_else(|| "the end of the file".to_owned(), |byte| format!("'{}'", byte.escape_ascii()))
    }

    fn expect(&mut self, what: &str, token: u8) -> FormatResult<()> {
        match self.next_token()? {
            Some(found) if found == token => {
                self.bump();
                Ok(())
            }
            found => Err(self.error(what, format!("'{}'", char::from(token)), Self::describe(found))),
        }
    }

    /// A string without escapes.
    pub(super) fn string(&mut self, what: &str) -> FormatResult<String> {
        self.expect(what, b'"')?;
        let mut text = Vec::new();
        loop {
            match self.peek()? {
                Some(b'"') => {
                    self.bump();
                    break;
                }
                Some(byte @ (0x20..0x7f)) if byte != b'\\' => {
                    if text.len() == MAX_TEXT {
                        return Err(self.error(what, format!("at most {MAX_TEXT} characters"), "more"));
                    }
                    text.push(byte);
                    self.bump();
                }
                found => return Err(self.error(what, "printable ASCII without escapes", Self::describe(found))),
            }
        }
        String::from_utf8(text).map_err(|e| self.error(what, "ASCII", e))
    }

    /// A small number, not in quotes.
    pub(super) fn number(&mut self, what: &str) -> FormatResult<u32> {
        let mut text = String::new();
        let mut next = self.next_token()?;
        while let Some(byte) = next.filter(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(byte)) {
            if text.len() == 16 {
                return Err(self.error(what, "a number below 2^32", format!("{text}...")));
            }
            text.push(char::from(byte));
            self.bump();
            next = self.peek()?;
        }
        let canonical = text.bytes().all(|b| b.is_ascii_digit()) && (text == "0" || !text.starts_with('0'));
        text.parse().ok().filter(|_| canonical).ok_or_else(|| {
            let found = if text.is_empty() { Self::describe(next) } else { text.clone() };
            self.error(what, "a number below 2^32", found)
        })
    }

    fn begin(&mut self, what: &str, open: u8, close: u8) -> FormatResult<Next> {
        self.expect(what, open)?;
        if self.next_token()? == Some(close) {
            self.bump();
            return Ok(Next::End);
        }
        Ok(Next::Item)
    }

    fn proceed(&mut self, what: &str, close: u8) -> FormatResult<Next> {
        match self.next_token()? {
            Some(b',') => {
                self.bump();
                Ok(Next::Item)
            }
            Some(found) if found == close => {
                self.bump();
                Ok(Next::End)
            }
            found => {
                let expected = format!("',' or '{}'", char::from(close));
                Err(self.error(what, expected, Self::describe(found)))
            }
        }
    }

    /// An array of exactly N items.
    pub(super) fn array<T, const N: usize>(
        &mut self,
        what: &str,
        mut item: impl FnMut(&mut Self, &str) -> FormatResult<T>,
    ) -> FormatResult<[T; N]> {
        let items = self.list(what, N, N, &mut item)?;
        let found = items.len();
        items.try_into().map_err(|_| self.error(what, format!("{N} items"), found))
    }

    /// An array of `least` to `most` items.
    pub(super) fn list<T>(
        &mut self,
        what: &str,
        least: usize,
        most: usize,
        mut item: impl FnMut(&mut Self, &str) -> FormatResult<T>,
    ) -> FormatResult<Vec<T>> {
        let mut items = Vec::new();
        let mut next = self.begin(what, b'[', b']')?;
        while next == Next::Item {
            if items.len() == most {
                return Err(self.error(what, format!("{most} items"), "more"));
            }
            items.push(item(self, &format!("{what}[{}]", items.len()))?);
            next = self.proceed(what, b']')?;
        }
        if items.len() < least {
            return Err(self.error(what, format!("{least} items"), items.len()));
        }
        Ok(items)
    }

    /// An object. `field` reads the value of the field it is given the name of. Refuses names not in `names`, and a
    /// name that comes twice.
    pub(super) fn object(
        &mut self,
        what: &str,
        names: &[&str],
        mut field: impl FnMut(&mut Self, &str) -> FormatResult<()>,
    ) -> FormatResult<()> {
        let mut left: Vec<&str> = names.to_vec();
        let mut next = self.begin(what, b'{', b'}')?;
        while next == Next::Item {
            let name = self.string("name of a field")?;
            let Some(position) = left.iter().position(|candidate| *candidate == name) else {
                let expected = if left.is_empty() { "no more".to_owned() } else { left.join(", ") };
                return Err(self.error(format!("field of the {what}"), expected, name));
            };
            left.remove(position);
            self.expect(&name, b':')?;
            field(self, &name)?;
            next = self.proceed(what, b'}')?;
        }
        Ok(())
    }

    /// Fails unless only white space follows.
    pub(super) fn end(&mut self) -> FormatResult<()> {
        match self.next_token()? {
            None => Ok(()),
            found => Err(self.error("text", "the end of the file", Self::describe(found))),
        }
    }
}
