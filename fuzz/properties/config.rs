//! Whatever a configuration says, it is taken or refused, the same way each time, and tells no secret.

use oncegate::config::{Config, check};

use super::input::Input;

const SECRET: &str = "fa1af2b3c4d5e6f708192a3b4c5d6e7f";

pub(super) fn holds(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let flags = [("server.listen", "127.0.0.1:1"), ("store.url", "sqlite::memory:"), ("marks.timeout", "\"1s\"")];
    let flag = flags[input.below(flags.len())];
    let is_set = input.flag();
    let Ok(text) = std::str::from_utf8(input.rest()) else { return };
    // It would read files that are there, or that have no end.
    if ["file:", "\\u", "\\U"].iter().any(|read| text.contains(read)) {
        return;
    }
    let parse = || {
        let env = ["A", "ONCEGATE_FINGERPRINT_SECRET", "ONCEGATE_JWT_SECRET"]
            .map(|name| (name.to_owned(), SECRET.to_owned()));
        let flags = is_set.then(|| (flag.0.to_owned(), flag.1.to_owned()));
        Config::parse("test.toml", text, env, flags)
    };
    match (parse(), parse()) {
        (Ok(config), Ok(again)) => {
            assert!(config == again, "read twice, it says two things");
            let findings = check(&config);
            assert!(findings.iter().all(|finding| !finding.key.is_empty() && !finding.text.is_empty()));
            for shown in [format!("{config:?}"), format!("{findings:?}")] {
                assert!(!shown.contains(SECRET), "a secret is shown");
            }
        }
        (Err(error), Err(_)) => {
            let shown = error.to_string();
            assert!(!shown.is_empty() && !shown.contains(SECRET), "{shown}");
        }
        (Ok(_), Err(error)) | (Err(error), Ok(_)) => panic!("once it is taken, and once: {error}"),
    }
}
