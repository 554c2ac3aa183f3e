//! The demo, as a newcomer runs it.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use oncegate::clock;

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
    for order in [1001, 1002, 1003] {
        let announced = told.lines().filter(|line| line.contains(&format!("\"order_no\":{order}"))).count();
        assert_eq!(announced, 1, "{order}: {told}");
        let granted = format!("order {order}: consumer called: 2, points granted: 1 x 250");
        assert!(told.contains(&granted), "{granted}: {told}");
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

/// A demo that goes on, and the commands that it invites to.
struct Running {
    demo: Child,
    commands: Vec<String>,
}

impl Running {
    fn start() -> Self {
        let flags = [listen("--listen", free_port()), listen("--upstream-listen", free_port())];
        let mut demo = Command::new(env!("CARGO_BIN_EXE_oncegate"))
            .arg("demo")
            .args(flags)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(demo.stdout.take().unwrap()).lines().map_while(Result::ok);
        let lines = lines.take_while(|line| !line.starts_with("Ctrl-C"));
        let commands = lines.filter(|line| line.starts_with("curl ") || line.starts_with("seq ")).collect();
        Self { demo, commands }
    }

    /// What the command with this text in it prints.
    fn run(&self, text: &str) -> String {
        let command = self.commands.iter().find(|command| command.contains(text)).unwrap();
        let output = Command::new("sh").args(["-c", command]).stderr(Stdio::null()).output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    }

    fn run_until(&self, text: &str, expected: &str) {
        let deadline = clock::now() + Duration::from_secs(30);
        loop {
            let seen = self.run(text);
            if seen.contains(expected) {
                return;
            }
            assert!(clock::now() < deadline, "{text}: {seen}");
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        drop(self.demo.kill());
        drop(self.demo.wait());
    }
}

#[test]
fn the_printed_commands_do_what_they_are_said_to() {
    let demo = Running::start();
    let pay = r#""order_no":2001,"amount":250"#;
    assert!(demo.run(pay).contains("idempotent-replayed: false"));
    assert!(demo.run(pay).contains("idempotent-replayed: true"));
    assert_eq!(demo.run("executed/2001"), "the upstream executed: 1\n");
    let storm = demo.run("seq 10");
    assert_eq!((storm.matches("201\n").count(), storm.matches("409\n").count()), (1, 9), "{storm}");
    assert_eq!(demo.run("executed/2002"), "the upstream executed: 1\n");
    assert!(demo.run(r#""order_no":2001,"amount":999"#).contains("HTTP/1.1 422"));
    assert!(demo.run("hang").contains("HTTP/1.1 504"));
    assert!(demo.run("hang").contains("outcome-unknown"));
    demo.run_until("hang", "idempotent-replayed: true");
    assert_eq!(demo.run("executed/2003"), "the upstream executed: 1\n");
    assert!(demo.run("fail").contains("HTTP/1.1 500"));
    assert!(demo.run("fail").contains("HTTP/1.1 409"));
    demo.run_until("fail", "HTTP/1.1 201");
    assert_eq!(demo.run("executed/2004"), "the upstream executed: 1\n");
    let events = demo.run("v1/events");
    assert_eq!(events.matches("\"order_no\":2001").count(), 1, "{events}");
    demo.run_until("v1/points", "order 2001: consumer called: 2, points granted: 1 x 250");
    assert!(demo.run("idempotency/requests").contains(r#""state":"completed""#));
}
