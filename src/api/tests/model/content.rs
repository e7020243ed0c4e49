//! Random contents: JSON in many spellings with its canonical form, and text.

use super::Random;
use super::operation::Content;
use super::oracle::{Kind, Message};

/// Bodies that are no JSON.
const NO_JSON: [&str; 8] = ["{", "[1,", "[1,2", "nul", "1 2", r#"{"a":1,}"#, "[,]", r#"["\x"]"#];
/// Strings that look like structure, or need escapes.
const STRINGS: [&str; 6] =
    [r#""a,b""#, r#""]}[{""#, r#""\"\\\u00e9\n""#, "\"\u{e9}\u{1f600}\"", r#""""#, r#"",""#];
/// Values whose spelling must be kept.
const SPELLINGS: [&str; 8] =
    ["0", "-0.0", "1E+2", "1.50", "true", "false", "null", "12345678901234567890123"];

/// A random content of a stream of this kind; `small` ones share a commit with others.
pub fn content(random: &mut Random, kind: Kind, small: bool) -> Content {
    match kind {
        Kind::Json => json(random, small),
        Kind::Text => {
            let bytes = filler_bytes(random, small).max(1);
            text(&random.letters(bytes))
        }
    }
}

/// So many records of one length; on a stream of text, a message.
pub fn alike(random: &mut Random, kind: Kind, records: u64) -> Content {
    let mut number = || (1_000_000 + random.below(1_000_000)).to_string();
    match kind {
        Kind::Text => text(&number()),
        Kind::Json => {
            let numbers: Vec<String> = (0..records).map(|_| number()).collect();
            let messages = numbers.iter().map(|number| message(number)).collect();
            Content { sent: format!("[{}]", numbers.join(",")).into_bytes().into(), messages: Ok(messages) }
        }
    }
}

/// A message of text.
pub fn text(text: &str) -> Content {
    let message: Message = text.as_bytes().into();
    Content { sent: message.clone(), messages: Ok(vec![message]) }
}

/// Bytes of what makes a message long: mostly few, now and then more than fit into a commit.
fn filler_bytes(random: &mut Random, small: bool) -> usize {
    let of = |random: &mut Random, bound: u64| random.below(bound) as usize;
    match random.below(if small { 90 } else { 300 }) {
        0..80 => of(random, 300),
        80..260 => of(random, 60),
        260..290 => 500 + of(random, 4000),
        290..297 => 5000 + of(random, 20_000),
        _ => 60_000 + of(random, 150_000),
    }
}

fn json(random: &mut Random, small: bool) -> Content {
    let invalid = |text: &str, code| Content { sent: text.as_bytes().into(), messages: Err(code) };
    let (count, uniform) = match random.below(40) {
        0 => return invalid(" [ ] ", "EMPTY_ARRAY"),
        1 => return invalid(NO_JSON[random.below(NO_JSON.len() as u64) as usize], "INVALID_JSON"),
        2..14 => {
            let mut record = record(random, small);
            // An array at the top would be taken apart.
            while record.0.starts_with('[') {
                record = self::record(random, small);
            }
            let (sent, canonical) = record;
            return Content { sent: sent.into_bytes().into(), messages: Ok(vec![message(&canonical)]) };
        }
        14..18 => (1 + random.below(150), true),
        18..20 => (1 + random.below(40), false),
        _ => (1 + random.below(6), false),
    };
    let (mut sent, mut messages) = ("[".to_owned(), Vec::new());
    for index in 0..count {
        let (spelled, canonical) = match uniform {
            true => Some((1_000_000 + random.below(1_000_000)).to_string()).map(|n| (n.clone(), n)),
            false => Some(record(random, small)),
        }
        .expect("one of both");
        if index > 0 {
            sent.push_str(if random.one_in(4) { " ,\n" } else { "," });
        }
        sent.push_str(&spelled);
        messages.push(message(&canonical));
    }
    sent.push(']');
    Content { sent: sent.into_bytes().into(), messages: Ok(messages) }
}

fn message(text: &str) -> Message {
    text.as_bytes().into()
}

/// A record as it is sent, and its canonical form.
fn record(random: &mut Random, small: bool) -> (String, String) {
    let pick = |random: &mut Random, list: &[&str]| list[random.below(list.len() as u64) as usize].to_owned();
    let space = pick(random, &["", "", " ", "\n\t "]);
    let inner = match random.below(4) {
        0 => pick(random, &STRINGS),
        1 => pick(random, &SPELLINGS),
        _ => {
            let bytes = filler_bytes(random, small);
            format!("\"{}\"", random.letters(bytes))
        }
    };
    let shape = pick(random, &["@", "@", "{\"b\":@,\"a\":1,\"b\":[]}", "[@,{}]", "{\"\":@}", "[]", "[[@]]"]);
    let mut spelled = String::new();
    for character in shape.chars() {
        match character {
            '@' => spelled.push_str(&inner),
            '{' | '[' | ',' | ':' => {
                spelled.push(character);
                spelled.push_str(&space);
            }
            _ => spelled.push(character),
        }
    }
    (spelled, shape.replace('@', &inner))
}
