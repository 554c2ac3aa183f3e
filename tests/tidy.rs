//! House rules that no other tool checks: which folder may import which, how long a file may be, and what
//! must not be left behind in one.

#![expect(clippy::unwrap_used, reason = "a test that can't go on fails")]

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use oncegate::config::{Config, Severity};
use oncegate::problem::{Facts, Retry, Situation};

/// What each folder of `src` may import of the others. Words know nobody, contracts and the engine know
/// words, adapters know contracts, and only the edge knows how a request comes in. A folder that is not here
/// does not exist yet: add it, and say here whom it may know.
const IMPORTS: &[(&str, &[&str])] = &[
    ("chance", &[]),
    ("clock", &[]),
    ("entry", &["chance", "clock"]),
    ("routing", &[]),
    ("problem", &[]),
    ("sealer", &[]),
    ("telemetry", &["clock"]),
    ("tls", &[]),
    ("auth", &["clock", "entry"]),
    ("outbox", &["broker", "chance", "clock", "engine", "entry"]),
    // A webhook is posted as a request to an upstream is sent.
    ("broker", &["clock", "engine", "outbox", "redis", "tls", "upstream"]),
    // A delivery goes out as a guarded request does.
    ("inbox", &["broker", "chance", "clock", "engine", "entry", "http", "outbox", "problem", "storage", "upstream"]),
    ("engine", &["chance", "clock", "committer", "entry", "outbox"]),
    ("committer", &["clock", "engine", "entry", "outbox"]),
    ("redis", &["tls"]),
    ("marks", &["clock", "engine", "entry", "redis", "sealer"]),
    ("storage", &["broker", "clock", "engine", "entry", "inbox", "outbox", "sealer"]),
    ("upstream", &["clock", "engine", "entry", "tls"]),
    ("http", &["auth", "clock", "engine", "entry", "outbox", "problem", "routing", "telemetry", "upstream"]),
    ("inbox", &["broker", "clock", "engine", "entry", "outbox", "storage"]),
    // Pages for operators, over what the operators' endpoints are made from.
    ("console", &["clock", "engine", "entry", "http", "outbox", "problem", "telemetry"]),
    ("layer", &["clock", "engine", "entry", "http", "outbox", "problem", "sealer", "storage", "upstream"]),
    ("config", &["auth", "broker", "entry", "http", "inbox", "outbox", "routing", "sealer"]),
    // The composition roots, of the gateway and of a service that embeds it, and who starts them.
    ("server", EVERYTHING),
    ("embed", EVERYTHING),
    ("demo", EVERYTHING),
    ("cli", EVERYTHING),
    ("main", EVERYTHING),
    ("lib", EVERYTHING),
];

const EVERYTHING: &[&str] = &[
    "auth",
    "broker",
    "chance",
    "cli",
    "clock",
    "committer",
    "config",
    "console",
    "demo",
    "embed",
    "engine",
    "entry",
    "http",
    "inbox",
    "layer",
    "marks",
    "outbox",
    "problem",
    "redis",
    "routing",
    "sealer",
    "server",
    "storage",
    "telemetry",
    "tls",
    "upstream",
];

/// Folders whose code makes no answers: those are made where a request came in.
const ANSWERLESS: [&str; 6] = ["clock", "entry", "engine", "committer", "storage", "marks"];

/// Longest file, its tests not counted.
const MAX_LINES: usize = 400;

/// A source file.
struct Source {
    /// From the root of the repository.
    path: PathBuf,
    text: String,
}

impl Source {
    /// The part of `src` that it belongs to: its folder, or its name at the top.
    fn part(&self) -> String {
        let below = self.path.strip_prefix("src").unwrap();
        let first = below.components().next().unwrap().as_os_str().to_str().unwrap();
        first.trim_end_matches(".rs").to_owned()
    }

    /// Its lines, numbered from 1, up to the tests inside it.
    fn code(&self) -> impl Iterator<Item = (usize, &str)> {
        let lines: Vec<&str> = self.text.lines().collect();
        let tests = lines.windows(2).position(|pair| pair[0] == "#[cfg(test)]" && pair[1].starts_with("mod "));
        let end = tests.unwrap_or(lines.len());
        lines.into_iter().take(end).enumerate().map(|(index, line)| (index + 1, line))
    }

    /// [`Self::code`] without comments that have a line of their own.
    fn statements(&self) -> impl Iterator<Item = (usize, &str)> {
        self.code().filter(|(_, line)| !line.trim_start().starts_with("//"))
    }

    fn at(&self, line: usize, what: &str) -> String {
        format!("{}:{line}: {what}", self.path.display())
    }
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The files below `folder` that end in `.{extension}`, in order.
fn files(folder: &str, extension: &str) -> Vec<Source> {
    let mut found = Vec::new();
    let mut folders = vec![root().join(folder)];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).into_iter().flatten() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|found| found == extension) {
                let text = std::fs::read_to_string(&path).unwrap();
                found.push(Source { path: path.strip_prefix(root()).unwrap().to_owned(), text });
            }
        }
    }
    found.sort_by(|one, other| one.path.cmp(&other.path));
    found
}

fn sources() -> Vec<Source> {
    let sources = files("src", "rs");
    assert!(!sources.is_empty(), "no sources: the checks below would check nothing");
    sources
}

/// Every file that people write Rust in.
fn all_rust() -> Vec<Source> {
    ["src", "tests", "benches", "examples"].into_iter().flat_map(|folder| files(folder, "rs")).collect()
}

fn assert_none(problems: &[String]) {
    assert!(problems.is_empty(), "\n{}", problems.join("\n"));
}

/// The names that follow `prefix` in `line`, where it begins a word.
fn after<'a>(line: &'a str, prefix: &'a str) -> impl Iterator<Item = &'a str> {
    let is_word = |char: char| char.is_alphanumeric() || char == '_';
    line.match_indices(prefix).filter_map(move |(start, _)| {
        if line[..start].ends_with(is_word) {
            return None;
        }
        let rest = &line[start + prefix.len()..];
        Some(&rest[..rest.find(|char| !is_word(char)).unwrap_or(rest.len())])
    })
}

#[test]
fn folders_import_in_one_direction() {
    let mut problems = Vec::new();
    for source in sources() {
        let part = source.part();
        let Some((_, allowed)) = IMPORTS.iter().find(|(known, _)| *known == part) else {
            problems.push(source.at(1, &format!("`{part}` is missing in tests/tidy.rs")));
            continue;
        };
        for (number, line) in source.statements() {
            for imported in after(line, "crate::") {
                if imported.is_empty() {
                    problems.push(source.at(number, "name one folder per `use crate::...`"));
                } else if imported != part && !allowed.contains(&imported) {
                    problems.push(source.at(number, &format!("`{part}` must not know `{imported}`")));
                }
            }
        }
    }
    assert_none(&problems);
}

#[test]
fn the_table_of_imports_names_only_folders_that_it_has() {
    let known: BTreeSet<&str> = IMPORTS.iter().map(|(part, _)| *part).collect();
    for (part, allowed) in IMPORTS {
        for imported in *allowed {
            assert!(known.contains(imported), "{part} -> {imported}");
        }
    }
}

#[test]
fn sql_is_spoken_in_storage_only_and_the_environment_is_read_in_config_only() {
    let mut problems = Vec::new();
    for source in sources() {
        let part = source.part();
        for (number, line) in source.statements() {
            if part != "storage" && after(line, "sqlx").any(|rest| rest.is_empty()) {
                problems.push(source.at(number, "sqlx outside of src/storage"));
            }
            if part != "config" && after(line, "env::").any(|name| name.starts_with("var")) {
                problems.push(source.at(number, "the environment is read in src/config"));
            }
        }
    }
    assert_none(&problems);
}

#[test]
fn words_engine_and_stores_make_no_answers() {
    let mut problems = Vec::new();
    for source in sources().into_iter().filter(|source| ANSWERLESS.contains(&source.part().as_str())) {
        for (number, line) in source.statements() {
            let made = ["Response::new", "Response::builder", "Response<"];
            if made.iter().any(|made| after(line, made).next().is_some()) {
                problems.push(source.at(number, "an answer is made here"));
            }
        }
    }
    assert_none(&problems);
}

#[test]
fn files_are_short_enough_to_be_read_at_once() {
    let too_long = |source: &Source| {
        let lines = source.code().count();
        (lines > MAX_LINES).then(|| source.at(lines, &format!("longer than {MAX_LINES} lines")))
    };
    assert_none(&all_rust().iter().filter_map(too_long).collect::<Vec<_>>());
}

/// Spelled in pieces, or this file would be the first to break the rule.
const LEFT_BEHIND: [&str; 7] = [
    concat!("TO", "DO"),
    concat!("FIX", "ME"),
    concat!("todo", "!("),
    concat!("unimplemented", "!("),
    concat!("#[", "allow("),
    concat!("#![", "allow("),
    concat!("/wo", "rk/"),
];

#[test]
fn nothing_is_left_behind() {
    let documents = ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "config.example.toml", "Cargo.toml"];
    let documents = documents.into_iter().map(|name| {
        let text = std::fs::read_to_string(root().join(name)).unwrap();
        Source { path: name.into(), text }
    });
    let mut problems = Vec::new();
    for source in all_rust().into_iter().chain(files("migrations", "sql")).chain(documents) {
        for (number, line) in source.text.lines().enumerate() {
            for word in LEFT_BEHIND.iter().filter(|word| line.contains(**word)) {
                problems.push(source.at(number + 1, word));
            }
        }
    }
    assert_none(&problems);
}

/// A part of a document between backticks or a link's brackets is taken for a path if it begins with one of
/// these.
const PATHS: [&str; 8] = ["src/", "tests/", "benches/", "examples/", "migrations/", "scripts/", ".ci/", "./"];

#[test]
fn documents_name_files_that_exist() {
    let mut problems = Vec::new();
    for name in ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md"] {
        let text = std::fs::read_to_string(root().join(name)).unwrap();
        let document = Source { path: name.into(), text };
        for (number, line) in document.text.lines().enumerate() {
            for word in line.split(|char: char| char.is_whitespace() || "`()[]|,;".contains(char)) {
                let path = word.split(['#', ':']).next().unwrap_or_default().trim_end_matches('.');
                let is_path = PATHS.iter().any(|start| path.starts_with(start)) || is_file_at_the_top(path);
                // A pattern names several.
                if is_path && !path.contains(['*', '<', '{']) && !root().join(path).exists() {
                    problems.push(document.at(number + 1, &format!("{path} does not exist")));
                }
            }
        }
    }
    assert_none(&problems);
}

fn is_file_at_the_top(word: &str) -> bool {
    let is_capital = |stem: &str| stem.len() > 2 && stem.bytes().all(|byte| byte.is_ascii_uppercase());
    word.strip_suffix(".md").is_some_and(is_capital) || word == "config.example.toml" || word == "docker-compose.yml"
}

#[test]
fn documents_name_modules_that_exist() {
    let text = std::fs::read_to_string(root().join("ARCHITECTURE.md")).unwrap();
    let document = Source { path: "ARCHITECTURE.md".into(), text };
    let mut problems = Vec::new();
    for (number, line) in document.text.lines().enumerate() {
        for code in line.split('`').skip(1).step_by(2).filter(|code| code.contains("::")) {
            let steps: Vec<&str> = code.split("::").collect();
            // Types and their methods are found by their names; only modules move unnoticed.
            let modules = steps.iter().take_while(|step| step.starts_with(|char: char| char.is_lowercase()));
            let path = modules.fold(root().join("src"), |path, step| path.join(step));
            if !path.exists() && !path.with_extension("rs").exists() {
                problems.push(document.at(number + 1, &format!("{code} does not exist")));
            }
        }
    }
    assert_none(&problems);
}

#[test]
fn the_three_databases_have_the_same_migrations() {
    let names = |database: &str| {
        let files = files(&format!("migrations/{database}"), "sql");
        files.iter().map(|file| file.path.file_name().unwrap().to_owned()).collect::<Vec<_>>()
    };
    let postgres = names("postgres");
    assert!(!postgres.is_empty());
    assert_eq!(names("mysql"), postgres);
    assert_eq!(names("sqlite"), postgres);
}

/// What the examples take from the environment.
fn example_env() -> [(String, String); 5] {
    [
        ("ADMIN_TOKEN", "0123456789abcdef0123456789abcdef"),
        ("STORE_PASSWORD", "password"),
        ("QUEUE_PASSWORD", "password"),
        ("ONCEGATE_FINGERPRINT_SECRET", "0123456789abcdef0123456789abcdef"),
        ("ONCEGATE_TOKEN_SECRET", "fedcba9876543210fedcba9876543210"),
    ]
    .map(|(name, value)| (name.to_owned(), value.to_owned()))
}

fn assert_sound(name: &str, text: &str) {
    let config = Config::parse(name, text, example_env(), []).unwrap_or_else(|error| panic!("{error}\n{text}"));
    let findings = oncegate::config::check(&config);
    let errors: Vec<_> = findings.iter().filter(|finding| finding.severity == Severity::Error).collect();
    assert!(errors.is_empty(), "{errors:?}\n{text}");
}

#[test]
fn configurations_in_documents_have_no_errors() {
    let readme = std::fs::read_to_string(root().join("README.md")).unwrap();
    let examples: Vec<&str> =
        readme.split("```toml\n").skip(1).map(|after| after.split("```").next().unwrap()).collect();
    assert!(!examples.is_empty());
    for example in examples {
        assert_sound("README.md", example);
    }
    let deployed = std::fs::read_to_string(root().join("deploy/oncegate.toml")).unwrap();
    assert_sound("deploy/oncegate.toml", &deployed);
}

#[test]
fn the_readme_has_a_row_for_every_situation() {
    let readme = std::fs::read_to_string(root().join("README.md")).unwrap();
    for situation in Situation::ALL {
        let Facts { slug, status, retry, .. } = situation.facts();
        let slug = format!("| `{slug}` |");
        let row = readme.lines().find(|line| line.contains(&slug)).unwrap_or_else(|| panic!("{slug} is missing"));
        let retry = match retry {
            Retry::SameKey => "same_key",
            Retry::NewKey => "new_key",
            Retry::No => "no",
        };
        assert!(row.contains(&format!("| {}", status.as_u16())) && row.ends_with(&format!("| {retry} |")), "{row}");
    }
}
