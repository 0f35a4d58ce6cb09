//! Progress bars on a terminal, nothing in a pipe.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// A bar for one long step; gone when dropped.
pub(super) struct Progress(ProgressBar);

impl Progress {
    /// A bar named `what`; it shows up once the work has taken a moment, and only on a terminal.
    pub(super) fn new(what: &str) -> Self {
        // indicatif's stderr target is hidden where standard error is no terminal.
        let bar = ProgressBar::with_draw_target(Some(0), ProgressDrawTarget::stderr_with_hz(10));
        if let Ok(style) = ProgressStyle::with_template("{msg} {wide_bar} {percent:>3} % {elapsed_precise}") {
            bar.set_style(style);
        }
        bar.set_message(what.to_owned());
        bar.enable_steady_tick(Duration::from_millis(100));
        Self(bar)
    }

    /// `done` of `total` units. May be called from any thread.
    pub(super) fn update(&self, done: u64, total: u64) {
        self.0.set_length(total);
        self.0.set_position(done);
    }
}

/// A line about work whose end isn't a number, on a terminal; gone when dropped.
pub(super) struct StatusLine(ProgressBar);

impl StatusLine {
    pub(super) fn new() -> Self {
        let line = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr_with_hz(5));
        if let Ok(style) = ProgressStyle::with_template("{elapsed_precise} {wide_msg}") {
            line.set_style(style);
        }
        Self(line)
    }

    pub(super) fn show(&self, text: String) {
        self.0.set_message(text);
    }
}

impl Drop for StatusLine {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}
