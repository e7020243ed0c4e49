//! Tables of RFC 8259's edges, and properties against `serde_json` as the oracle.

use super::*;
use proptest::prelude::*;

/// The records of a body, or the code of its error. Checks what holds for every result.
fn records(body: &[u8]) -> Result<Vec<String>, Code> {
    let (mut scratch, mut lengths) = (b"left over".to_vec(), vec![7]);
    let payload = split(body, &mut scratch, &mut lengths, AllowEmpty::Yes).map_err(|problem| problem.code)?;
    let total: usize = lengths.iter().map(|&length| length as usize).sum();
    if lengths.is_empty() {
        assert_eq!(payload, b"");
    } else {
        assert_eq!(total, payload.len() + 1, "lengths {lengths:?} of {}", String::from_utf8_lossy(payload));
    }
    let mut stored = [payload, b","].concat();
    stored.truncate(total);
    let mut rest = &stored[..];
    let mut found = Vec::new();
    for length in lengths {
        let (record, after) = rest.split_at(length as usize);
        assert_eq!(record.last(), Some(&b','));
        found.push(String::from_utf8(record[..record.len() - 1].to_vec()).unwrap());
        rest = after;
    }
    Ok(found)
}

/// Whether the body could be used without a copy.
fn is_borrowed(body: &[u8]) -> bool {
    let (mut scratch, mut lengths) = (Vec::new(), Vec::new());
    let payload = split(body, &mut scratch, &mut lengths, AllowEmpty::Yes).unwrap();
    let range = body.as_ptr_range();
    payload.is_empty() || range.contains(&payload.as_ptr())
}

#[test]
fn bodies_and_their_records() {
    let table: &[(&str, &[&str])] = &[
        // The examples of base protocol 9.1.2.
        (r#"{"event": "created"}"#, &[r#"{"event":"created"}"#]),
        (r#"[{"event": "a"}, {"event": "b"}]"#, &[r#"{"event":"a"}"#, r#"{"event":"b"}"#]),
        ("[[1,2], [3,4]]", &["[1,2]", "[3,4]"]),
        ("[[[1,2,3]]]", &["[[1,2,3]]"]),
        // Values of each kind.
        ("1", &["1"]),
        ("\"s\"", &["\"s\""]),
        ("true", &["true"]),
        ("false", &["false"]),
        ("null", &["null"]),
        ("{}", &["{}"]),
        ("[]", &[]),
        ("[[]]", &["[]"]),
        ("[{},[],\"\",0]", &["{}", "[]", "\"\"", "0"]),
        // Tokens stay as they are.
        (r#"{"b":1,"a":2,"b":3}"#, &[r#"{"b":1,"a":2,"b":3}"#]),
        (
            r#"[1.0,1e0,1E+0,-0,10000000000000000000000,1.50]"#,
            &["1.0", "1e0", "1E+0", "-0", "10000000000000000000000", "1.50"],
        ),
        (r#"["\u0041\/\u00e9","é"]"#, &[r#""\u0041\/\u00e9""#, "\"é\""]),
        (r#"["\ud800","\udc00\ud800"]"#, &[r#""\ud800""#, r#""\udc00\ud800""#]),
        ("\"\u{7f}\u{2028}\"", &["\"\u{7f}\u{2028}\""]),
        // White space goes wherever it is insignificant, and nowhere else.
        (" \t\r\n1 \t\r\n", &["1"]),
        ("[ ]", &[]),
        (" [ \n ] ", &[]),
        ("[ 1 , 2 ]", &["1", "2"]),
        ("[1 ,2]", &["1", "2"]),
        ("[ { \"a b\" : [ 1 , { } , [ ] ] , \"c\" : \" \" } ]", &[r#"{"a b":[1,{},[]],"c":" "}"#]),
        ("{\n\t\"a\": {\n\t\t\"b\": null\n\t}\n}\n", &[r#"{"a":{"b":null}}"#]),
        ("[[ ] ,{ }]", &["[]", "{}"]),
    ];
    for (body, expected) in table {
        assert_eq!(records(body.as_bytes()).as_deref(), Ok(&expected.map_to_strings()[..]), "{body}");
    }
}

/// Turns a table's texts into what [`records`] returns.
trait MapToStrings {
    fn map_to_strings(&self) -> Vec<String>;
}

impl MapToStrings for &[&str] {
    fn map_to_strings(&self) -> Vec<String> {
        self.iter().map(ToString::to_string).collect()
    }
}

#[test]
fn bodies_that_are_not_json() {
    let table: &[&[u8]] = &[
        b"",
        b" ",
        b"{ invalid json }",
        b"[",
        b"]",
        b"{",
        b"}",
        b"[1",
        b"[1,",
        b"[1,]",
        b"[[1}",
        b"[[1}]",
        b"{\"a\":[1}}",
        b"[{\"a\":1]]",
        b"{\"a\":{]}",
        b"[[}]",
        b"[,1]",
        b"[1 2]",
        b"[1}",
        b"{]",
        b"{\"a\"}",
        b"{\"a\":}",
        b"{\"a\":1,}",
        b"{\"a\":1",
        b"{\"a\":1]",
        b"{,}",
        b"{1:2}",
        b"{a:1}",
        b"{'a':1}",
        b"{\"a\" 1}",
        b"{\"a\"::1}",
        b"{\"a\":1 \"b\":2}",
        b"[[1]",
        b"[1]]",
        b"[1],",
        b",",
        b"1,2",
        b"1 2",
        b"[1]x",
        b"{}{}",
        // Numbers.
        b"01",
        b"-01",
        b"00",
        b"-",
        b"+1",
        b".5",
        b"1.",
        b"1.e1",
        b"1e",
        b"1e+",
        b"1E-",
        b"1e1.5",
        b"0x10",
        b"1_000",
        b"NaN",
        b"Infinity",
        b"-Infinity",
        b"--1",
        b"1-",
        b"0e",
        b"[01]",
        b"[1.]",
        b"[-]",
        // Literals.
        b"tru",
        b"True",
        b"nul",
        b"nulll",
        b"truefalse",
        b"[true false]",
        b"fals",
        b"undefined",
        // Strings.
        b"\"",
        b"\"a",
        b"\"\\\"",
        b"\"\\",
        b"\"\\x\"",
        b"\"\\u12\"",
        b"\"\\u12g4\"",
        b"\"\\u",
        b"\"\\u123",
        b"'a'",
        b"\"a\nb\"",
        b"\"a\tb\"",
        b"\"\0\"",
        b"\"0123456789abcdef\x1f\"",
        b"\"0123456789abcdefghijklmnopqrstuvw\n\"",
        b"[\"a\" \"b\"]",
        b"\"\\U0041\"",
        b"{\"a\n\":1}",
        // Bytes outside strings that are no white space of JSON.
        b"\xef\xbb\xbf{}",
        b"[1,\x0c2]",
        b"[1,\x0b2]",
        b"\xc2\xa01",
        b"1\0",
        b"\0",
        b"[1]\0",
        b"// c\n1",
        b"/**/1",
        // Not UTF-8: a stray byte, an overlong form, a surrogate, a cut character, beyond the last code point.
        b"\"\xff\"",
        b"\"\xc0\x80\"",
        b"\"\xed\xa0\x80\"",
        b"\"\xe2\x82\"",
        b"\"\xf4\x90\x80\x80\"",
        b"[1]\xff",
    ];
    for body in table {
        assert_eq!(records(body), Err(Code::InvalidJson), "{}", String::from_utf8_lossy(body));
    }
}

#[test]
fn an_error_names_the_byte() {
    let message = |body: &[u8]| {
        let (mut scratch, mut lengths) = (Vec::new(), Vec::new());
        split(body, &mut scratch, &mut lengths, AllowEmpty::No).unwrap_err().message.into_owned()
    };
    assert_eq!(message(b"[1, 2 3]"), "invalid JSON at byte 6: expected a comma or a closing bracket");
    assert_eq!(message(b"{ invalid }"), "invalid JSON at byte 2: expected a string as key");
    assert_eq!(message(b""), "invalid JSON at byte 0: expected a value");
    assert_eq!(message(b"\"a\xff\""), "invalid JSON at byte 2: not UTF-8");
}

#[test]
fn an_empty_array_is_for_creates() {
    let (mut scratch, mut lengths) = (Vec::new(), Vec::new());
    for body in ["[]", " [ ] "] {
        let empty = split(body.as_bytes(), &mut scratch, &mut lengths, AllowEmpty::No);
        assert_eq!(empty.map_err(|problem| problem.code), Err(Code::EmptyArray), "{body}");
        assert_eq!(
            split(body.as_bytes(), &mut scratch, &mut lengths, AllowEmpty::Yes),
            Ok(&b""[..]),
            "{body}"
        );
        assert!(lengths.is_empty());
    }
    assert!(split(b"[[]]", &mut scratch, &mut lengths, AllowEmpty::No).is_ok());
}

#[test]
fn nesting_at_its_limit() {
    let nested = |open: &str, inside: &str, close: &str, depth: usize| {
        format!("{}{inside}{}", open.repeat(depth), close.repeat(depth))
    };
    // A record of exactly the limit; the flattened array does not count.
    assert!(records(nested("{\"a\":", "1", "}", JSON_DEPTH_MAX).as_bytes()).is_ok());
    assert!(records(nested("[", "", "]", JSON_DEPTH_MAX + 1).as_bytes()).is_ok());
    for body in [
        nested("{\"a\":", "1", "}", JSON_DEPTH_MAX + 1),
        nested("{\"a\":", "{}", "}", JSON_DEPTH_MAX),
        nested("[", "", "]", JSON_DEPTH_MAX + 2),
        nested("[", "{}", "]", JSON_DEPTH_MAX + 1),
        "[".repeat(1_000_000),
    ] {
        assert_eq!(records(body.as_bytes()), Err(Code::JsonTooDeep));
    }
    // Many values side by side are not deep.
    assert_eq!(records(format!("[{}1]", "[[]],".repeat(1000)).as_bytes()).map(|list| list.len()), Ok(1001));
}

#[test]
fn a_compact_body_is_not_copied() {
    for body in [
        r#"{"a":[1,2,{"b":"c d"}]}"#,
        r#"[{"a":1},{"b":2}]"#,
        "[1]",
        " [1] ",
        "[ 1]",
        "[1 ]",
        "\n[ 1,2 \n]\n",
        "  1\n",
    ] {
        assert!(is_borrowed(body.as_bytes()), "{body}");
    }
    for body in ["[1, 2]", "[1 ,2]", r#"{"a": 1}"#, r#"{"a":1 }"#, "[[ 1]]"] {
        assert!(!is_borrowed(body.as_bytes()), "{body}");
    }
}

#[test]
fn strings_end_where_they_end_at_any_length() {
    // Every length around the chunks of sixteen, and around four of them behind two, with the special byte at every place.
    for length in (0..70).chain(92..100).chain(156..164) {
        for at in 0..length {
            for (special, ok) in [
                ("\\n", true),
                ("\\u00e9", true),
                ("\n", false),
                ("\\q", false),
                ("\u{e9}", true),
                ("\\\\\\\"", true),
            ] {
                let text = format!("{}{special}{}", "x".repeat(at), "y".repeat(length - at));
                let body = format!("[\"{text}\",{{\"{text}\":\"{text}\"}}]");
                match records(body.as_bytes()) {
                    Ok(list) => {
                        assert!(ok, "{body}");
                        assert_eq!(list, [format!("\"{text}\""), format!("{{\"{text}\":\"{text}\"}}")]);
                    }
                    Err(_) => assert!(!ok, "{body}"),
                }
            }
        }
    }
}

#[test]
fn text_beyond_ascii_is_checked_wherever_it_stands() {
    for length in 0..70 {
        for (wrong, valid_bytes) in
            [(&b"\xff"[..], 0), (b"\xe2\x82", 0), (b"\xe2\x82\xac\x80", 3), (b"\xc3\xa9\xed\xa0\x80", 2)]
        {
            let body = [&b"[1,\""[..], &vec![b'x'; length], wrong, b"\"]"].concat();
            let (mut scratch, mut lengths) = (Vec::new(), Vec::new());
            let problem = split(&body, &mut scratch, &mut lengths, AllowEmpty::No).unwrap_err();
            let at = 4 + length + valid_bytes;
            assert_eq!(
                problem.message,
                format!("invalid JSON at byte {at}: not UTF-8"),
                "{length} before it"
            );
        }
    }
}

/// Whatever an earlier body has left in the memory that is used again.
#[test]
fn memory_is_used_again() {
    let (mut scratch, mut lengths) = (Vec::new(), Vec::new());
    for spaces in [40, 3, 0, 1, 200, 2] {
        let gap = " ".repeat(spaces);
        let long = "z".repeat(spaces);
        let body = format!("[1,{gap}\"{long}\",{gap}{{\"a\":{gap}[]{gap}}}{gap},2]");
        let expected = format!("1,\"{long}\",{{\"a\":[]}},2");
        let payload = split(body.as_bytes(), &mut scratch, &mut lengths, AllowEmpty::No).unwrap();
        assert_eq!(String::from_utf8_lossy(payload), expected, "{spaces} spaces");
        assert_eq!(lengths, [2, spaces as u32 + 3, 9, 2]);
    }
}

#[test]
fn lines() {
    let mut page = b"1,{\"a\":\",\"},".to_vec();
    separators_to_lines(&mut page, [2, 10].into_iter());
    assert_eq!(page, b"1\n{\"a\":\",\"}\n");
    separators_to_lines(&mut [], std::iter::empty());
}

#[test]
#[should_panic(expected = "a separator at 1")]
fn lines_need_the_right_lengths() {
    separators_to_lines(&mut b"12,".to_vec(), [2, 1].into_iter());
}

/// Any JSON value, with the white space that `pad` draws between its tokens.
fn json_text() -> impl Strategy<Value = String> {
    let pad = || proptest::sample::select(vec!["", "", "", " ", "\n\t", "\r "]);
    let string = any::<String>().prop_map(|text| serde_json::to_string(&text).unwrap());
    let escaped =
        "([a-z]|\\\\\\\\|\\\\\"|\\\\n|\\\\u[0-9a-fA-F]{4}){0,12}".prop_map(|text| format!("\"{text}\""));
    let number = "-?(0|[1-9][0-9]{0,20})(\\.[0-9]{1,5})?([eE][+-]?[0-9]{1,3})?";
    let leaf = prop_oneof![
        string.clone(),
        escaped.clone(),
        number,
        Just("true".to_string()),
        Just("false".into()),
        Just("null".into())
    ];
    let key = prop_oneof![string, escaped];
    leaf.prop_recursive(6, 60, 8, move |inner| {
        let element = (pad(), inner.clone(), pad()).prop_map(|(a, value, b)| format!("{a}{value}{b}"));
        let member = (pad(), key.clone(), pad(), pad(), inner, pad())
            .prop_map(|(a, key, b, c, value, d)| format!("{a}{key}{b}:{c}{value}{d}"));
        prop_oneof![
            (pad(), proptest::collection::vec(element, 0..8)).prop_map(|(space, list)| {
                match list.is_empty() {
                    true => format!("[{space}]"),
                    false => format!("[{}]", list.join(",")),
                }
            }),
            (pad(), proptest::collection::vec(member, 0..8)).prop_map(|(space, list)| {
                match list.is_empty() {
                    true => format!("{{{space}}}"),
                    false => format!("{{{}}}", list.join(",")),
                }
            }),
        ]
    })
}

/// Whether `serde_json` takes the text as JSON. It skips strings that nobody asks for without a look at their encoding.
fn oracle(body: &[u8]) -> bool {
    std::str::from_utf8(body).is_ok() && serde_json::from_slice::<serde::de::IgnoredAny>(body).is_ok()
}

/// The text without white space outside strings.
fn without_space(text: &str) -> String {
    let (mut out, mut in_string, mut escaped) = (String::new(), false, false);
    for c in text.chars() {
        if in_string || !matches!(c, ' ' | '\t' | '\r' | '\n') {
            out.push(c);
        }
        match c {
            '"' if !escaped => in_string = !in_string,
            _ => {}
        }
        escaped = in_string && c == '\\' && !escaped;
    }
    out
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn json_is_accepted_and_keeps_its_tokens(text in json_text()) {
        prop_assert!(oracle(text.as_bytes()), "the generator makes JSON: {}", text);
        let compact = without_space(&text);
        let found = records(text.as_bytes()).unwrap();
        let expected = if text.starts_with('[') { format!("[{}]", found.join(",")) } else { found.join("") };
        prop_assert_eq!(&expected, &compact);
        for record in &found {
            prop_assert!(oracle(record.as_bytes()), "{}", record);
        }
        // Its own array, and being split again, change nothing.
        let array = format!("[{}]", found.join(","));
        prop_assert!(is_borrowed(array.as_bytes()));
        prop_assert_eq!(records(array.as_bytes()).unwrap(), found);
    }

    #[test]
    fn damaged_json_is_judged_as_the_oracle_does(text in json_text(), at: proptest::sample::Index, byte: u8, kind in 0..3) {
        let mut body = text.into_bytes();
        let at = at.index(body.len());
        match kind {
            0 => { body.remove(at); }
            1 => body[at] = byte,
            _ => body.insert(at, byte),
        }
        prop_assert_eq!(records(&body).is_ok(), oracle(&body), "{}", String::from_utf8_lossy(&body));
    }

    #[test]
    fn short_texts_are_judged_as_the_oracle_does(text in "[\\[\\]{},:\"\\\\0-9a-u.eE+ \n-]{0,12}") {
        prop_assert_eq!(records(text.as_bytes()).is_ok(), oracle(text.as_bytes()), "{}", text);
    }

    #[test]
    fn any_bytes_are_judged_as_the_oracle_does(body in proptest::collection::vec(any::<u8>(), 0..30)) {
        prop_assert_eq!(records(&body).is_ok(), oracle(&body), "{}", String::from_utf8_lossy(&body));
    }
}
