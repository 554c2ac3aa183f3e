//! A real browser without a window: Debian's Chromium, told what to do through ChromeDriver (W3C WebDriver).

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;

use oncegate::clock;
use serde_json::{Value, json};

use super::process::{Process, ServerDir, free_port};

/// How long a page may take to become what is waited for.
const PATIENCE: Duration = Duration::from_secs(60);

/// How WebDriver calls an element in its answers.
const ELEMENT: &str = "element-6066-11e4-a52e-4f735466cecf";

/// A window of a browser of its own. Dropped, it is closed.
#[derive(Debug)]
pub(crate) struct Browser {
    port: u16,
    session: String,
    _driver: Process,
}

impl Browser {
    /// An empty window of so many pixels.
    pub(crate) fn start(width: u32, height: u32) -> Self {
        let port = free_port();
        let dir = ServerDir::new("browser", None);
        let mut command = dir.command("chromedriver");
        command.arg(format!("--port={port}")).env("HOME", dir.path()).env("TMPDIR", dir.path());
        let driver = Process::start(dir, &command, "TERM").wait_for_port(port);
        // Without its sandbox, which root does not get: it shows nothing but our own pages.
        let arguments = [
            "--headless=new".to_owned(),
            "--no-sandbox".to_owned(),
            "--disable-dev-shm-usage".to_owned(),
            "--disable-gpu".to_owned(),
            format!("--window-size={width},{height}"),
        ];
        let options = json!({ "args": arguments });
        let wanted = json!({ "capabilities": { "alwaysMatch": { "goog:chromeOptions": options } } });
        let made = call(port, "POST", "/session", Some(&wanted));
        let session = made["sessionId"].as_str().unwrap().to_owned();
        Self { port, session, _driver: driver }
    }

    /// Opens a page, and waits until it is loaded.
    pub(crate) fn open(&self, url: &str) {
        self.ask("POST", "/url", Some(&json!({ "url": url })));
    }

    /// Clicks on the first element that `css` selects, as a person would: it must be there to be seen.
    pub(crate) fn click(&self, css: &str) {
        let found = self.ask("POST", "/element", Some(&json!({ "using": "css selector", "value": css })));
        let element = found[ELEMENT].as_str().unwrap();
        self.ask("POST", &format!("/element/{element}/click"), Some(&json!({})));
    }

    /// Types into the first element that `css` selects, after what is there.
    pub(crate) fn fill(&self, css: &str, text: &str) {
        let found = self.ask("POST", "/element", Some(&json!({ "using": "css selector", "value": css })));
        let element = found[ELEMENT].as_str().unwrap();
        self.ask("POST", &format!("/element/{element}/value"), Some(&json!({ "text": text })));
    }

    /// Presses keys wherever the focus is; special ones as WebDriver spells them.
    pub(crate) fn press(&self, keys: &str) {
        let found = self.ask("GET", "/element/active", None);
        let element = found[ELEMENT].as_str().unwrap();
        self.ask("POST", &format!("/element/{element}/value"), Some(&json!({ "text": keys })));
    }

    /// Looks through a telephone from now on.
    pub(crate) fn be_a_telephone(&self) {
        let metrics = json!({ "width": 360, "height": 740, "deviceScaleFactor": 2, "mobile": true });
        self.tell("Emulation.setDeviceMetricsOverride", &metrics);
    }

    /// Prefers dark pages from now on.
    pub(crate) fn be_dark(&self) {
        let features = json!([{ "name": "prefers-color-scheme", "value": "dark" }]);
        self.tell("Emulation.setEmulatedMedia", &json!({ "features": features }));
    }

    /// A command of Chromium's own.
    pub(crate) fn tell(&self, command: &str, parameters: &Value) {
        self.ask("POST", "/goog/cdp/execute", Some(&json!({ "cmd": command, "params": parameters })));
    }

    /// What a script returns.
    pub(crate) fn run(&self, script: &str) -> Value {
        self.ask("POST", "/execute/sync", Some(&json!({ "script": script, "args": [] })))
    }

    /// The text of the page, as it is seen.
    pub(crate) fn text(&self) -> String {
        // Between two pages there is none.
        self.run("return document.body ? document.body.innerText : ''").as_str().unwrap().to_owned()
    }

    /// Waits until `holds` of the page's text. Panics with that text when patience ends.
    pub(crate) fn wait_until(&self, what: &str, holds: impl Fn(&str) -> bool) {
        let deadline = clock::now() + PATIENCE;
        loop {
            let text = self.text();
            if holds(&text) {
                return;
            }
            assert!(clock::now() < deadline, "never: {what}\n{text}");
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    /// Waits until a script returns true.
    pub(crate) fn wait_for(&self, script: &str) {
        let deadline = clock::now() + PATIENCE;
        while self.run(script) != true {
            assert!(clock::now() < deadline, "never: {script}\n{}", self.text());
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    fn ask(&self, method: &str, path: &str, body: Option<&Value>) -> Value {
        call(self.port, method, &format!("/session/{}{path}", self.session), body)
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            self.ask("DELETE", "", None);
        }
    }
}

/// One command of WebDriver. Panics with what the driver says against it.
fn call(port: u16, method: &str, path: &str, body: Option<&Value>) -> Value {
    let body = body.map(Value::to_string).unwrap_or_default();
    let mut driver = TcpStream::connect(("127.0.0.1", port)).unwrap();
    driver.set_read_timeout(Some(PATIENCE)).unwrap();
    let head = format!(
        "{method} {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nContent-Type: application/json\r\n\
         Content-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    );
    driver.write_all((head + &body).as_bytes()).unwrap();
    // ChromeDriver does not close the connection, though it is asked to.
    let mut driver = BufReader::new(driver);
    let (mut head, mut length) = (String::new(), 0);
    while !head.ends_with("\r\n\r\n") {
        let begun = head.len();
        assert!(driver.read_line(&mut head).unwrap() > 0, "{method} {path}: {head}");
        if let Some(value) = head[begun..].to_ascii_lowercase().strip_prefix("content-length:") {
            length = value.trim().parse().unwrap();
        }
    }
    let mut answer = vec![0; length];
    driver.read_exact(&mut answer).unwrap();
    let mut answer: Value = serde_json::from_slice(&answer).unwrap();
    assert!(head.starts_with("HTTP/1.1 200"), "{method} {path}: {answer}");
    answer["value"].take()
}
