use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

fn spelled_ignoring(body: &str, ignore: &[&str]) -> Option<Vec<u8>> {
    let ignore: Vec<Pointer> = ignore.iter().map(|pointer| Pointer::parse(pointer).unwrap()).collect();
    let mut out = Vec::new();
    spell(body.as_bytes(), &ignore, &mut out).ok().map(|()| out)
}

fn spelled(body: &str) -> Option<Vec<u8>> {
    spelled_ignoring(body, &[])
}

#[test]
fn member_order_white_space_escapes_and_number_writing_do_not_count() {
    let table = [
        (r#"{"a":1,"b":[2,{"d":3,"c":null}]}"#, "{ \"b\" : [2.0,{\"c\":null,\r\n\t\"d\":30e-1}], \"\\u0061\" : 1 } "),
        (r#""\u00e9\/""#, "\"\u{e9}/\""),
        (r#"{"z":{"y":1,"x":2},"a":{"c":1,"b":2}}"#, r#"{"a":{"b":2,"c":1},"z":{"x":2,"y":1}}"#),
        ("[-0,1e2]", "[0,100.0]"),
    ];
    for (one, other) in table {
        assert!(spelled(one).is_some(), "{one}");
        assert_eq!(spelled(one), spelled(other), "{one} and {other}");
    }
}

#[test]
fn what_means_something_else_is_spelled_otherwise() {
    let different = [
        "{}",
        "[]",
        "null",
        "true",
        "false",
        "0",
        "1",
        "-1",
        "\"\"",
        "\"1\"",
        "\"null\"",
        "[[]]",
        "[{}]",
        "[null]",
        "[1,2]",
        "[2,1]",
        "[12]",
        "[[1],2]",
        "[[1,2]]",
        r#"["a","b"]"#,
        r#"["ab"]"#,
        r#"["ab",""]"#,
        r#"{"a":null}"#,
        r#"{"a":{}}"#,
        r#"{"a":"b"}"#,
        r#"["a","b",[]]"#,
        r#"{"A":"b"}"#,
        r#"{"a":{"b":1},"c":2}"#,
        r#"{"a":{"b":1,"c":2}}"#,
        "100.0000000000000001",
        "9007199254740993",
        "9007199254740992",
        "\"a \"",
        "\"a\"",
        "\"\u{e9}\"",
        "\"e\u{301}\"",
    ];
    for (i, one) in different.iter().enumerate() {
        assert!(spelled(one).is_some(), "{one}");
        for other in &different[i + 1..] {
            assert_ne!(spelled(one), spelled(other), "{one} and {other}");
        }
    }
}

#[test]
fn what_readers_take_for_different_things_counts_by_bytes() {
    let deep = |levels: usize| "[".repeat(levels) + &"]".repeat(levels);
    let table = [
        r#"{"a":1,"a":1}"#.to_owned(),
        r#"[{"x":{"b":1,"a":2,"\u0062":3}}]"#.to_owned(),
        r#"["\ud800"]"#.to_owned(),
        r#"{"\ud800":1}"#.to_owned(),
        "1e99999999999999999999".to_owned(),
        "{\"a\":1".to_owned(),
        "[1] []".to_owned(),
        String::new(),
        deep(MAX_DEPTH + 1),
        deep(1_000_000),
        "{\"a\":".repeat(1_000_000),
    ];
    for body in table {
        assert_eq!(spelled(&body), None, "{:.40}", body);
    }
    assert!(spelled(&deep(MAX_DEPTH)).is_some());
    assert!(spell(b"\"\xff\"", &[], &mut Vec::new()).is_err());
}

#[test]
fn nothing_is_appended_for_what_counts_by_bytes() {
    let mut out = b"head".to_vec();
    assert_eq!(spell(br#"{"b":[1],"a":"#, &[], &mut out), Err(CountsByBytes));
    assert_eq!(out, b"head");
}

#[test]
fn an_ignored_member_is_as_if_absent_wherever_it_stands() {
    let ignore = ["/time", "/meta/nonce", "/lines/1/at", "/no/such", "/a~1b"];
    let same = [
        r#"{"amount":1,"meta":{},"lines":[{},{}]}"#,
        r#"{"time":7,"amount":1,"meta":{"nonce":"x"},"lines":[{},{"at":{"b":1,"a":2}}]}"#,
        r#"{"meta":{"nonce":null},"lines":[{},{"at":2}],"a/b":[],"amount":1,"time":"8"}"#,
    ];
    for body in same {
        assert_eq!(spelled_ignoring(body, &ignore), spelled(same[0]), "{body}");
    }
    let other = [
        r#"{"amount":2,"meta":{},"lines":[{},{}]}"#,
        r#"{"amount":1,"meta":{},"lines":[{"at":1},{}]}"#,
        r#"{"amount":1,"meta":{"time":1},"lines":[{},{}]}"#,
    ];
    for body in other {
        assert_ne!(spelled_ignoring(body, &ignore), spelled(same[0]), "{body}");
    }
}

#[test]
fn an_ignored_element_keeps_its_place() {
    let spelled = |body| spelled_ignoring(body, &["/0"]);
    assert_eq!(spelled("[1,2]"), spelled("[{\"a\":[]},2]"));
    assert_ne!(spelled("[1,2]"), spelled("[2]"));
    assert_ne!(spelled("[1]"), spelled("[]"));
    assert_eq!(spelled_ignoring("1", &[""]), spelled_ignoring("[2]", &[""]));
}

#[test]
fn a_duplicate_inside_what_is_ignored_still_counts_by_bytes() {
    assert_eq!(spelled_ignoring(r#"{"time":1,"time":2}"#, &["/time"]), None);
    assert_eq!(spelled_ignoring(r#"{"time":{"a":1,"a":2}}"#, &["/time"]), None);
}

/// A document's meaning, to compare spellings with.
#[derive(Debug, Clone, PartialEq)]
enum Model {
    Null,
    Bool(bool),
    Int(i64),
    Text(String),
    Array(Vec<Model>),
    Object(BTreeMap<String, Model>),
}

fn models() -> impl Strategy<Value = Model> {
    let text = "[a\"\\\\é\\n1:;{}]{0,3}";
    let leaf = prop_oneof![
        Just(Model::Null),
        any::<bool>().prop_map(Model::Bool),
        any::<i64>().prop_map(Model::Int),
        (-2_i64..3).prop_map(|small| Model::Int(small * 10)),
        text.prop_map(Model::Text),
    ];
    leaf.prop_recursive(4, 32, 4, move |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..4).prop_map(Model::Array),
            proptest::collection::btree_map(text, inner, 0..4).prop_map(Model::Object),
        ]
    })
}

/// Writes `model` as JSON in a way that depends on `way`.
fn write(model: &Model, way: u8) -> String {
    let space = if way & 1 == 0 { "" } else { " \n" };
    match model {
        Model::Null => "null".to_owned(),
        Model::Bool(bool) => bool.to_string(),
        Model::Int(int) if way & 2 == 0 => int.to_string(),
        Model::Int(0) => "-0.0E+7".to_owned(),
        Model::Int(int) => format!("{int}0.00E-1"),
        Model::Text(text) if way & 4 == 0 => serde_json::to_string(text).unwrap(),
        Model::Text(text) => {
            let units: String = text.encode_utf16().map(|unit| format!("\\u{unit:04X}")).collect();
            format!("\"{units}\"")
        }
        Model::Array(elements) => {
            let elements: Vec<String> = elements.iter().map(|element| write(element, way)).collect();
            format!("[{space}{}{space}]", elements.join(&format!("{space},")))
        }
        Model::Object(members) => {
            let member = |(name, value): (&String, &Model)| {
                format!("{}{space}:{space}{}", write(&Model::Text(name.clone()), way), write(value, way))
            };
            let mut members: Vec<String> = members.iter().map(member).collect();
            if way & 8 != 0 {
                members.reverse();
            }
            format!("{{{}{space}}}", members.join(","))
        }
    }
}

/// Reads a spelling back. That it can be done without knowing the document shows that no two meanings have
/// one spelling.
fn read(spelling: &mut &[u8]) -> Model {
    match take(spelling, 1)[0] {
        b'N' => Model::Null,
        b'T' => Model::Bool(true),
        b'F' => Model::Bool(false),
        b'0' => Model::Int(0),
        sign @ (b'+' | b'-') => {
            let exponent = i64::from_be_bytes(take(spelling, 8).try_into().unwrap());
            let end = spelling.iter().position(|byte| *byte == b';').unwrap();
            let digits = String::from_utf8(take(spelling, end).to_vec()).unwrap();
            take(spelling, 1);
            let text = format!("{}{digits}{}", char::from(sign), "0".repeat(usize::try_from(exponent).unwrap()));
            Model::Int(text.parse().unwrap())
        }
        b'"' => Model::Text(read_text(spelling)),
        b'[' => {
            let mut elements = Vec::new();
            while spelling[0] != b']' {
                elements.push(read(spelling));
            }
            take(spelling, 1);
            Model::Array(elements)
        }
        b'{' => {
            let mut members = BTreeMap::new();
            while spelling[0] != b'}' {
                let name = read_text(spelling);
                members.insert(name, read(spelling));
            }
            take(spelling, 1);
            Model::Object(members)
        }
        other => panic!("{other}"),
    }
}

fn read_text(spelling: &mut &[u8]) -> String {
    let length = u64::from_be_bytes(take(spelling, 8).try_into().unwrap());
    String::from_utf8(take(spelling, usize::try_from(length).unwrap()).to_vec()).unwrap()
}

fn take<'a>(bytes: &mut &'a [u8], count: usize) -> &'a [u8] {
    let (taken, rest) = bytes.split_at(count);
    *bytes = rest;
    taken
}

proptest! {
    #[test]
    fn a_spelling_tells_the_meaning_and_nothing_but_the_meaning(model in models(), way in 0_u8..16) {
        let plain = spelled(&write(&model, 0)).unwrap();
        prop_assert_eq!(&spelled(&write(&model, way)).unwrap(), &plain);
        let mut rest = &plain[..];
        prop_assert_eq!(read(&mut rest), model);
        prop_assert!(rest.is_empty());
    }

    #[test]
    fn any_bytes_are_spelled_or_refused_without_panicking(bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
        let ignore = [Pointer::parse("/0/a").unwrap()];
        let mut out = Vec::new();
        let refused = spell(&bytes, &ignore, &mut out).is_err();
        prop_assert!(!refused || out.is_empty());
    }
}
