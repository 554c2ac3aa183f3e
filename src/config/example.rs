//! `config.example.toml` against the code.

use std::collections::BTreeSet;

use super::{Config, check};

const EXAMPLE: &str = include_str!("../../config.example.toml");

/// Only what has no default.
const MINIMAL: &str = r#"
    [store]
    url = "sqlite://oncegate.db"
    [secrets]
    fingerprint = ["env:ONCEGATE_FINGERPRINT_SECRET"]
    [[upstreams]]
    name = "payments"
    urls = ["http://127.0.0.1:9090"]
    [[routes]]
    name = "create-payment"
    match = "POST /v1/payments"
    upstream = "payments"
    [routes.idempotency]
    key = ["body:/order_no"]
"#;

fn load(text: &str) -> Result<Config, String> {
    let env = [
        "ONCEGATE_FINGERPRINT_SECRET",
        "ADMIN_TOKEN",
        "STORE_PASSWORD",
        "MARKS_PASSWORD",
        "SENTINEL_PASSWORD",
        "LOOKUP_AUTHORIZATION",
        "QUEUE_PASSWORD",
        "NATS_SEED",
        "POINTS_AUTHORIZATION",
        "POINTS_ALERT_URL",
        "JWT_PUBLIC_KEY",
        "JWT_SECRET",
        "ONCEGATE_TOKEN_SECRET",
    ]
    .map(|name| (name.to_owned(), "an-example-secret-of-some-length".to_owned()));
    Config::parse("config.example.toml", text, env, []).map_err(|error| error.to_string())
}

/// The example with its optional settings (`#key = …`, no space after the `#`) switched on.
fn uncommented() -> String {
    EXAMPLE
        .lines()
        .map(|line| line.strip_prefix('#').filter(|rest| !rest.starts_with([' ', '#'])).unwrap_or(line))
        .fold(String::new(), |text, line| text + line + "\n")
}

#[test]
fn every_default_shown_is_the_codes_default() {
    assert_eq!(load(EXAMPLE), load(MINIMAL));
}

#[test]
fn the_example_has_no_findings() {
    assert_eq!(check(&load(EXAMPLE).unwrap()), []);
}

#[test]
fn the_optional_settings_load_too() {
    load(&uncommented()).unwrap();
}

/// Asks the code for the keys of each table, by an unknown one.
#[test]
fn every_setting_is_shown() {
    let tree: toml::Table = uncommented().parse().unwrap();
    let mut tables = Vec::new();
    collect_tables(&toml::Value::Table(tree.clone()), &mut Vec::new(), &mut tables);
    // Whose keys are anybody's, and one whose settings are those of another.
    let skipped = ["headers", "equals", "queues"];
    for path in tables.iter().filter(|path| !path.last().is_some_and(|key| skipped.contains(&&**key))) {
        let mut tree = toml::Value::Table(tree.clone());
        let table = path.iter().fold(&mut tree, |at, key| match at {
            toml::Value::Array(elements) => &mut elements[0][&**key],
            other => &mut other[&**key],
        });
        let table = if table.is_array() { &mut table[0] } else { table };
        let table = table.as_table_mut().unwrap();
        table.insert("frobnicate".to_owned(), true.into());
        let shown: BTreeSet<String> = table.keys().filter(|key| *key != "frobnicate").cloned().collect();
        let error = load(&toml::to_string(&tree).unwrap()).unwrap_err();
        let (_, known) = error.split_once("possible are ").unwrap_or_else(|| panic!("{path:?}: {error}"));
        assert_eq!(shown, known.split(", ").map(str::to_owned).collect(), "{path:?}");
    }
    assert!(tables.len() > 15, "{tables:?}");
}

fn collect_tables(at: &toml::Value, path: &mut Vec<String>, tables: &mut Vec<Vec<String>>) {
    if let toml::Value::Array(elements) = at
        && let Some(first) = elements.first()
    {
        return collect_tables(first, path, tables);
    }
    let Some(table) = at.as_table() else {
        return;
    };
    tables.push(path.clone());
    for (key, value) in table {
        path.push(key.clone());
        collect_tables(value, path, tables);
        path.pop();
    }
}
