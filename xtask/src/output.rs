//! Standard output. It may be a pipe whose reader has seen enough, as in
//! `cargo xtask lab list | head`: the rest is said to nobody then.

use std::io::{self, ErrorKind, Write};

/// Prints text.
///
/// # Errors
/// That of the file or terminal; none if the reader of a pipe has gone.
pub(crate) fn print(text: &str) -> io::Result<()> {
    print_to(&mut io::stdout().lock(), text)
}

fn print_to(out: &mut impl Write, text: &str) -> io::Result<()> {
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        result => result,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An output that fails.
    struct Failing(ErrorKind);

    impl Write for Failing {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(self.0.into())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_reader_that_has_gone_is_no_error_and_a_full_disk_is_one() {
        let mut all = Vec::new();
        print_to(&mut all, "a\nb\n").unwrap();
        assert_eq!(all, b"a\nb\n");
        print_to(&mut Failing(ErrorKind::BrokenPipe), "a\n").unwrap();
        let full = print_to(&mut Failing(ErrorKind::StorageFull), "a\n").unwrap_err();
        assert_eq!(full.kind(), ErrorKind::StorageFull);
    }
}
