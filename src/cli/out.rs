//! What commands print. Whoever reads it may have seen enough before its end, as `head` has: that ends the command, and
//! is no error.

use std::fmt::Arguments;
use std::io::{self, ErrorKind, Write as _};
use std::process;

/// Prints a text.
pub(super) fn write(text: Arguments<'_>) {
    let mut out = io::stdout().lock();
    match out.write_fmt(text).and_then(|()| out.flush()) {
        Ok(()) => {}
        Err(error) if error.kind() == ErrorKind::BrokenPipe => process::exit(0),
        Err(error) => {
            eprintln!("oncegate: the output can't be written: {error}");
            process::exit(1);
        }
    }
}

/// Prints a line, as `println!` does.
macro_rules! say {
    ($($text:tt)*) => { $crate::cli::out::write(format_args!("{}\n", format_args!($($text)*))) };
}

/// Prints a text, as `print!` does.
macro_rules! tell {
    ($($text:tt)*) => { $crate::cli::out::write(format_args!($($text)*)) };
}

pub(super) use {say, tell};
