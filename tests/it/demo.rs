//! The demo, as a newcomer runs it.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use oncegate::clock;

use crate::servers::browser::Browser;
use crate::servers::process::free_port;

fn demo(flags: &[String]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_oncegate")).arg("demo").args(flags).output().unwrap()
}

fn listen(flag: &str, port: u16) -> String {
    format!("{flag}=127.0.0.1:{port}")
}

#[test]
fn the_demo_tells_its_story_with_nothing_installed() {
    let flags = [
        listen("--listen", free_port()),
        listen("--admin-listen", free_port()),
        listen("--upstream-listen", free_port()),
        "--once".to_owned(),
    ];
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
fn who_has_seen_enough_of_the_output_ends_a_command_in_peace() {
    let oncegate = env!("CARGO_BIN_EXE_oncegate");
    let output = Command::new("sh").args(["-c", &format!("{oncegate} openapi | head -n 1")]).output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert_eq!((text(&output.stdout), text(&output.stderr)), ("{\n".to_owned(), String::new()));
}

#[test]
fn a_busy_port_names_its_flag() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    const FLAGS: [&str; 3] = ["--listen", "--admin-listen", "--upstream-listen"];
    for flag in FLAGS {
        let others = FLAGS.into_iter().filter(|other| *other != flag).map(|other| listen(other, free_port()));
        let flags: Vec<_> = others.chain([listen(flag, port), "--once".to_owned()]).collect();
        let output = demo(&flags);
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
    gateway: u16,
    admin: u16,
    commands: Vec<String>,
}

impl Running {
    fn start() -> Self {
        let (gateway, admin) = (free_port(), free_port());
        let flags =
            [listen("--listen", gateway), listen("--admin-listen", admin), listen("--upstream-listen", free_port())];
        let mut demo = Command::new(env!("CARGO_BIN_EXE_oncegate"))
            .arg("demo")
            .args(flags)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(demo.stdout.take().unwrap()).lines().map_while(Result::ok);
        let lines = lines.take_while(|line| !line.starts_with("Ctrl-C"));
        let commands = lines.filter(|line| line.starts_with("curl ") || line.starts_with("seq ")).collect();
        Self { demo, gateway, admin, commands }
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

/// What the page says of an order, once it says all that is expected.
fn wait_for_order(page: &Browser, order: &str, expected: &[&str]) {
    page.wait_until(order, |text| {
        let row = text.lines().find(|line| line.starts_with(order) && line.contains("consumer called"));
        row.is_some_and(|row| expected.iter().all(|part| row.contains(part)))
    });
}

#[test]
fn the_page_pays_each_order_once_whatever_is_pressed() {
    let demo = Running::start();
    let page = Browser::start(1_200, 1_600);
    page.open(&format!("http://127.0.0.1:{}/demo", demo.gateway));
    let order = || page.run("return document.getElementById('order').textContent").as_str().unwrap().to_owned();
    let answered = |text: &str, order: &str, what: &str| {
        let lines: Vec<&str> = text.lines().collect();
        lines.windows(3).filter(|line| line[0] == order && line[2].contains(what)).count()
    };
    let once = ["once", "completed", "granted once, consumer called 2 times"];

    let paid = order();
    page.click("#pay");
    page.wait_until("paid", |text| answered(text, &paid, "paid") == 1);
    let tokens = "return performance.getEntriesByType('resource').filter(one => one.name.endsWith('/idempotency/tokens')).length";
    assert_eq!(page.run(tokens), 1, "one click is one token");
    page.click("#pay");
    page.wait_until("replayed", |text| answered(text, &paid, "the first answer, replayed") == 1);
    page.click("#other");
    page.wait_until("refused", |text| answered(text, &paid, "other request") + answered(text, &paid, "key") > 0);
    wait_for_order(&page, &paid, &once);

    page.click("#ten");
    let stormed = order();
    assert_ne!(stormed, paid);
    page.wait_until("one of ten is paid", |text| {
        answered(text, &stormed, "paid") == 1 && text.lines().filter(|line| *line == stormed).count() >= 10
    });
    wait_for_order(&page, &stormed, &once);

    page.click("#lose");
    let lost = order();
    page.wait_until("no answer, then the first one's", |text| {
        answered(text, &lost, "no answer") == 1 && answered(text, &lost, "the first answer, replayed") == 1
    });
    wait_for_order(&page, &lost, &once);

    page.click("#break");
    let broken = order();
    wait_for_order(&page, &broken, &["once", "unknown"]);
    page.wait_until("held, then settled", |text| answered(text, &broken, "the first answer, replayed") == 1);
    wait_for_order(&page, &broken, &once);
    assert_eq!(page.run("return document.querySelectorAll('.bad:not(.status)').length"), 0, "{}", page.text());
}

#[test]
fn what_operators_see_stands_beside_it() {
    let demo = Running::start();
    let page = Browser::start(1_200, 1_600);
    page.open(&format!("http://127.0.0.1:{}/", demo.admin));
    page.wait_until("the console", |text| text.contains("Needs a person") && text.contains("replayed"));
    page.open(&format!("http://127.0.0.1:{}/console/search?q=1003", demo.admin));
    page.wait_until("the order of the story", |text| text.contains("create-payment") && text.contains("completed"));
}

#[test]
fn the_page_fits_a_telephone_and_asks_nobody_else() {
    let demo = Running::start();
    let page = Browser::start(500, 900);
    page.open(&format!("http://127.0.0.1:{}/demo", demo.gateway));
    page.click("#pay");
    page.wait_until("paid", |text| text.contains("granted once"));
    let fits = "return document.documentElement.scrollWidth <= document.documentElement.clientWidth";
    assert_eq!(page.run(fits), true);
    let asked = "return performance.getEntriesByType('resource').every(one => one.name.startsWith(location.origin))";
    assert_eq!(page.run(asked), true);
    let names =
        "return [...document.querySelectorAll('button')].every(one => one.innerText.trim() && one.tabIndex === 0)";
    assert_eq!(page.run(names), true);
}
