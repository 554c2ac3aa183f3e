//! The command line, as a person runs it.

use std::path::PathBuf;
use std::process::{Command, Output};

use serde_json::Value;

use super::process::{Process, ServerDir};

/// A configuration in a directory of its own, with the secrets that it names as files beside it, and whoever runs
/// commands with it: `ann`.
pub(crate) struct Console {
    dir: tempfile::TempDir,
}

impl Console {
    /// With the configuration `text`, in which `{dir}` stands for the directory: it has a `secret` and a `token`.
    pub(crate) fn new(text: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        for (name, secret) in
            [("secret", "0123456789abcdef0123456789abcdef"), ("token", "fedcba9876543210fedcba9876543210")]
        {
            std::fs::write(dir.path().join(name), secret).unwrap();
        }
        let console = Self { dir };
        let text = text.replace("{dir}", &console.dir.path().display().to_string());
        std::fs::write(console.config(), text).unwrap();
        console
    }

    /// With a configuration that names the database and no more.
    pub(crate) fn of_database(url: &str) -> Self {
        Self::new(&format!("[store]\nurl = \"{url}\"\n[secrets]\nfingerprint = [\"file:{{dir}}/secret\"]\n"))
    }

    /// Where the configuration is.
    pub(crate) fn config(&self) -> PathBuf {
        self.dir.path().join("oncegate.toml")
    }

    /// Adds to the configuration.
    pub(crate) fn configure(&self, more: &str) {
        let text = std::fs::read_to_string(self.config()).unwrap();
        std::fs::write(self.config(), text + more).unwrap();
    }

    /// A gateway with this configuration, which answers operators at `port`.
    pub(crate) fn serve(&self, port: u16) -> Process {
        let dir = ServerDir::new("gateway", None);
        let mut command = dir.command(env!("CARGO_BIN_EXE_oncegate"));
        command.arg("serve").arg("--config").arg(self.config());
        Process::start(dir, &command, "TERM").wait_for_port(port)
    }

    /// Runs a command to its end: its words, such as `events list`, and their arguments.
    pub(crate) fn run(&self, arguments: &[&str]) -> Output {
        Command::new(env!("CARGO_BIN_EXE_oncegate"))
            .args(arguments)
            .arg("--config")
            .arg(self.config())
            .env("USER", "ann")
            .env_remove("ONCEGATE_ADMIN_URL")
            .env_remove("ONCEGATE_ADMIN_TOKEN")
            .output()
            .unwrap()
    }

    /// What a command that must succeed prints.
    #[track_caller]
    pub(crate) fn text(&self, arguments: &[&str]) -> String {
        let output = self.run(arguments);
        assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    /// The same for programs.
    #[track_caller]
    pub(crate) fn json(&self, arguments: &[&str]) -> Value {
        serde_json::from_str(&self.text(&[arguments, &["--output", "json"]].concat())).unwrap()
    }

    /// The code that it exits with.
    pub(crate) fn code(&self, arguments: &[&str]) -> Option<i32> {
        self.run(arguments).status.code()
    }
}
