//! The demo, as a newcomer runs it.

use std::process::{Command, Output};

use crate::servers::process::free_port;

fn demo(flags: &[String]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_oncegate")).arg("demo").args(flags).output().unwrap()
}

fn listen(flag: &str, port: u16) -> String {
    format!("{flag}=127.0.0.1:{port}")
}

#[test]
fn the_demo_tells_its_story_with_nothing_installed() {
    let flags = [listen("--listen", free_port()), listen("--upstream-listen", free_port()), "--once".to_owned()];
    let output = demo(&flags);
    let told = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{told}\n{}", String::from_utf8_lossy(&output.stderr));
    let expected = [
        ("pay order 1001 ", "-> 201 "),
        ("pay order 1001 again", "-> 201, Idempotent-Replayed: true"),
        ("pay order 1002 ten times at once", "-> 1 x 201, 9 x 409 processing"),
        ("order 1001 with another amount", "-> 422, key-reused"),
        ("pay order 1003, the upstream hangs", "-> 504, upstream-timeout"),
        ("pay order 1003 again at once", "-> 409, outcome-unknown"),
        ("... and once a lookup has settled it", "-> 200, Idempotent-Replayed: true"),
    ];
    for (what, seen) in expected {
        let line = told.lines().find(|line| line.contains(what)).unwrap_or_else(|| panic!("no {what} in {told}"));
        assert!(line.contains(seen) && line.ends_with("the upstream executed: 1"), "{line}");
    }
}

#[test]
fn a_busy_port_names_its_flag() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    for (flag, other) in [("--listen", "--upstream-listen"), ("--upstream-listen", "--listen")] {
        let output = demo(&[listen(flag, port), listen(other, free_port()), "--once".to_owned()]);
        let error = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{error}");
        assert!(
            error.contains(&format!("{port} can't be bound")) && error.contains(&format!("with {flag}\n")),
            "{error}"
        );
    }
}
