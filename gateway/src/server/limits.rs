//! Limits of the API and the web page: on the number of rows and the length of
//! texts that peers make long, and on waiting.

use std::time::Duration;

/// Most rows of a list in an answer of the API; the answer has their total number.
pub(crate) const MAX_API_ROWS: usize = 1000;
/// Most rows of a table of the page.
pub(crate) const MAX_PAGE_ROWS: usize = 200;
/// Longest text of a cell of the page, in characters.
pub(crate) const MAX_PAGE_TEXT_CHARS: usize = 120;
/// Interval between points of the history.
pub(crate) const HISTORY_STEP: Duration = Duration::from_secs(5);
/// Most points of the history: those of an hour.
pub(crate) const HISTORY_POINTS: usize = 720;
/// Age up to which a collected status answers requests: however many browsers
/// look, it is collected about once in this time.
pub(crate) const STATUS_AGE: Duration = Duration::from_millis(900);
/// Time limit for collecting the status. Later requests do not wait: they are
/// answered with the last one, and its age.
pub(crate) const COLLECT_TIMEOUT: Duration = Duration::from_secs(3);
/// Shortest token, in bytes: one that cannot be guessed.
pub(crate) const MIN_TOKEN_BYTES: usize = 16;
/// Longest file of a token, in bytes.
pub(crate) const MAX_TOKEN_FILE_BYTES: u64 = 4096;

const _: () = assert!(HISTORY_STEP.as_secs() * HISTORY_POINTS as u64 == 3600);
const _: () = assert!(MAX_PAGE_ROWS <= MAX_API_ROWS);
const _: () = assert!(crate::observe::http::ANSWER_TIMEOUT.as_secs() < COLLECT_TIMEOUT.as_secs());
