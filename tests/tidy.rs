//! Style as a test: layers, sizes, leftovers and strings that belong to one machine. Each check is a function
//! from a file's name and text to findings, and has a test of its own that it does find.

use std::collections::BTreeSet;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::{env, fs};

use thalweg::protocol::errors::Code;

/// The layer rule of `src/lib.rs`: which top modules a top module may name. What is not listed may name
/// nothing of ours, and a new top module must be added here.
const LAYERS: &[(&str, &[&str])] = &[
    ("limits", &[]),
    ("signal", &[]),
    ("config", &["limits"]),
    ("protocol", &["limits"]),
    ("http", &["limits", "signal", "protocol"]),
    ("storage", &["limits", "signal", "config", "protocol"]),
    ("shard", &["limits", "signal", "config", "protocol", "storage"]),
    ("api", &["limits", "signal", "config", "protocol", "storage", "shard", "http"]),
    ("node", &["limits", "signal", "config", "protocol", "storage", "shard", "http", "api"]),
    ("loadgen", &["limits", "protocol"]),
    (
        "cli",
        &["limits", "signal", "config", "protocol", "storage", "shard", "http", "api", "node", "loadgen"],
    ),
    ("main", &["cli"]),
    ("lib", &[]),
];

/// Production lines of a file: comments count, `mod tests` does not.
const FILE_LINES_MAX: usize = 600;
/// Production lines of a file named in [`LONG_FILES`].
const FILE_LINES_LIMIT: usize = 700;
/// Files between the two. A ratchet: it may only get shorter.
const LONG_FILES: &[&str] = &[];
/// Lines of a production function, from `fn` to its closing brace.
const FUNCTION_LINES_MAX: usize = 70;
/// Longer functions, as `file: name`. A ratchet: it may only get shorter.
const LONG_FUNCTIONS: &[&str] = &[];

/// Code that is unfinished or was left behind.
const LEFTOVERS: &[&str] = &["todo!", "unimplemented!", "dbg!", "#[ignore]"];
/// Directories that are on somebody's machine. In pieces, so that this file does not contain them.
const MACHINE_PATHS: &[&str] = &[
    concat!("/wo", "rk/"),
    concat!("/ro", "ot/"),
    concat!("/ho", "me/"),
    concat!("/Us", "ers/"),
    concat!("/m", "nt/"),
];
/// Hosts and settings of package registries: a lock file made behind a mirror must not name it.
const REGISTRIES: &[&str] = &[
    concat!("registry.", "npmjs"),
    concat!("py", "pi.org"),
    concat!("files.python", "hosted"),
    concat!("static.", "crates.io"),
    concat!("index.", "crates.io"),
    concat!("sparse", "+http"),
    concat!("index", "-url"),
    concat!("\"resol", "ved\": \"http"),
];
/// The one registry that `Cargo.lock` may name.
const CARGO_SOURCE: &str = "registry+https://github.com/rust-lang/crates.io-index";

// --- reading

/// A text file of the repository.
struct Source {
    /// Path from the root, with `/`.
    name: String,
    text: String,
}

fn root() -> PathBuf {
    PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").expect("cargo names the package's directory"))
}

/// All text files below the root, without what is built, downloaded or measured.
fn sources() -> Vec<Source> {
    let mut files = Vec::new();
    let mut directories = vec![root()];
    while let Some(directory) = directories.pop() {
        for entry in fs::read_dir(&directory).expect("a directory of the repository") {
            let path = entry.expect("an entry of it").path();
            let name = path.file_name().expect("an entry has a name").to_string_lossy().into_owned();
            let is_foreign = ["target", "node_modules", "data", "__pycache__"].contains(&name.as_str())
                || (name.starts_with('.') && ![".ci", ".gitignore", ".github"].contains(&name.as_str()));
            if is_foreign || path.is_symlink() {
                continue;
            }
            if path.is_dir() {
                directories.push(path);
            } else if let Ok(text) = fs::read_to_string(&path) {
                let name = path.strip_prefix(root()).expect("found below the root");
                files.push(Source { name: name.to_string_lossy().into_owned(), text });
            }
        }
    }
    files.sort_by(|one, other| one.name.cmp(&other.name));
    assert!(files.iter().any(|file| file.name == "src/lib.rs"), "the repository was found: {}", files.len());
    files
}

fn rust_sources() -> Vec<Source> {
    sources().into_iter().filter(|file| file.name.ends_with(".rs")).collect()
}

/// Files of `src` that are not tests as a whole.
fn production_sources() -> Vec<Source> {
    let is_test = |name: &str| name.ends_with("/tests.rs") || name.contains("/tests/");
    rust_sources().into_iter().filter(|file| file.name.starts_with("src/") && !is_test(&file.name)).collect()
}

/// The text with every comment, string and character literal replaced by spaces: code only, line for line.
fn code_of(text: &str) -> String {
    let chars: Vec<char> = text.chars().collect();
    let mut code = String::with_capacity(text.len());
    let mut at = 0;
    while at < chars.len() {
        let end = literal_end(&chars, at).unwrap_or(at);
        if end == at {
            code.push(chars[at]);
            at += 1;
            continue;
        }
        code.extend(chars[at..end].iter().map(|c| if *c == '\n' { '\n' } else { ' ' }));
        at = end;
    }
    code
}

/// Where the comment or literal ends that starts at `at`; none if none does.
fn literal_end(chars: &[char], at: usize) -> Option<usize> {
    let starts = |text: &str| text.chars().enumerate().all(|(index, c)| chars.get(at + index) == Some(&c));
    let find = |from: usize, is_end: &dyn Fn(usize) -> bool| {
        (from..chars.len()).find(|index| is_end(*index)).unwrap_or(chars.len())
    };
    if starts("//") {
        return Some(find(at, &|index| chars[index] == '\n'));
    }
    if starts("/*") {
        let mut depth = 0;
        for index in at..chars.len() {
            match (chars[index], chars.get(index + 1)) {
                ('/', Some('*')) => depth += 1,
                ('*', Some('/')) if depth == 1 => return Some(index + 2),
                ('*', Some('/')) => depth -= 1,
                _ => {}
            }
        }
        return Some(chars.len());
    }
    if chars[at] == 'r' && !(at > 0 && is_word(chars[at - 1]) && chars[at - 1] != 'b') {
        let hashes = chars[at + 1..].iter().take_while(|c| **c == '#').count();
        if chars.get(at + 1 + hashes) == Some(&'"') {
            let closes = |index: usize| {
                chars[index] == '"' && (1..=hashes).all(|hash| chars.get(index + hash) == Some(&'#'))
            };
            return Some((find(at + 2 + hashes, &closes) + 1 + hashes).min(chars.len()));
        }
    }
    // 'x' and '\n' are characters; 'x without a quote after it is a lifetime.
    let is_char = chars[at] == '\'' && (chars.get(at + 1) == Some(&'\\') || chars.get(at + 2) == Some(&'\''));
    if chars[at] == '"' || is_char {
        let mut index = at + 1;
        while index < chars.len() && chars[index] != chars[at] {
            index += if chars[index] == '\\' { 2 } else { 1 };
        }
        return Some((index + 1).min(chars.len()));
    }
    None
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// Starts of `word` in the code where it is not part of a longer word.
fn word_starts<'a>(code: &'a str, word: &'a str) -> impl Iterator<Item = usize> + 'a {
    code.match_indices(word).map(|(at, _)| at).filter(move |at| {
        let before = code[..*at].chars().next_back();
        let after = code[at + word.len()..].chars().next();
        let is_joined = |c: Option<char>| c.is_some_and(is_word);
        !(is_joined(before) && word.starts_with(is_word) || is_joined(after) && word.ends_with(is_word))
    })
}

fn line_of(code: &str, at: usize) -> usize {
    1 + code[..at].matches('\n').count()
}

/// The `{...}` that starts at or after `from`, before any `;` outside of brackets.
fn braces(code: &str, from: usize) -> Option<Range<usize>> {
    let (mut depth, mut start) = (0_i32, None);
    for (at, byte) in code.bytes().enumerate().skip(from) {
        match (byte, start) {
            (b'(' | b'[', None) => depth += 1,
            (b')' | b']', None) => depth -= 1,
            (b';', None) if depth == 0 => return None,
            (b'{', None) if depth == 0 => (start, depth) = (Some(at), 1),
            (b'{', Some(_)) => depth += 1,
            (b'}', Some(start)) if depth == 1 => return Some(start..at + 1),
            (b'}', Some(_)) => depth -= 1,
            _ => {}
        }
    }
    None
}

/// The code with the inside of every `mod tests` removed.
fn without_tests(code: &str) -> String {
    let mut rest = code.to_string();
    loop {
        let found = word_starts(&rest, "mod tests").find_map(|at| Some(at..braces(&rest, at)?.end));
        match found {
            Some(range) => rest.replace_range(range, ""),
            None => return rest,
        }
    }
}

// --- checks

/// Names of other top modules that a file may not name.
fn layer_findings(name: &str, text: &str) -> Vec<String> {
    let top = name.trim_start_matches("src/").split('/').next().unwrap_or(name).trim_end_matches(".rs");
    let Some((_, allowed)) = LAYERS.iter().find(|(layer, _)| *layer == top) else {
        return vec![format!("{name}: `{top}` has no place among the layers")];
    };
    let code = code_of(text);
    let named = named_modules(&code);
    let is_layer = |module: &str| LAYERS.iter().any(|(layer, _)| *layer == module);
    named
        .iter()
        .filter(|module| is_layer(module) && **module != top && !allowed.contains(&module.as_str()))
        .map(|module| format!("{name}: `{top}` may not use `{module}`"))
        .collect()
}

/// First segments of all paths that start at the crate: `crate::a`, `crate::{a, b::c}`, and from `super` or
/// the crate's own name likewise. `super` does not always lead to the root; only names of layers count in the
/// end.
fn named_modules(code: &str) -> BTreeSet<String> {
    let mut named = BTreeSet::new();
    for prefix in ["crate::", "super::", "thalweg::"] {
        for at in word_starts(code, prefix) {
            let after = &code[at + prefix.len()..];
            let Some(list) = after.strip_prefix('{') else {
                named.insert(after.chars().take_while(|c| is_word(*c)).collect());
                continue;
            };
            let (mut depth, mut at_start) = (0, true);
            for (index, c) in list.char_indices() {
                match c {
                    '{' => depth += 1,
                    '}' if depth == 0 => break,
                    '}' => depth -= 1,
                    ',' if depth == 0 => at_start = true,
                    c if is_word(c) && at_start => {
                        named.insert(list[index..].chars().take_while(|c| is_word(*c)).collect());
                        at_start = false;
                    }
                    _ => {}
                }
            }
        }
    }
    named
}

fn file_length_findings(name: &str, text: &str, long_files: &[&str]) -> Vec<String> {
    let lines = without_tests(&code_of(text)).lines().count();
    let is_listed = long_files.contains(&name);
    let max = if is_listed { FILE_LINES_LIMIT } else { FILE_LINES_MAX };
    if lines > max {
        return vec![format!("{name}: {lines} production lines, at most {max}")];
    }
    if is_listed && lines <= FILE_LINES_MAX {
        return vec![format!("{name}: {lines} lines, no longer an exception: take it off the list")];
    }
    Vec::new()
}

fn function_length_findings(name: &str, text: &str, long_functions: &[&str]) -> Vec<String> {
    let code = without_tests(&code_of(text));
    let mut findings = Vec::new();
    for at in word_starts(&code, "fn ") {
        let function: String = code[at + 3..].chars().take_while(|c| is_word(*c)).collect();
        let Some(body) = braces(&code, at) else { continue };
        let lines = 1 + code[at..body.end].matches('\n').count();
        let is_listed = long_functions.contains(&format!("{name}: {function}").as_str());
        if !function.is_empty() && lines > FUNCTION_LINES_MAX && !is_listed {
            findings.push(format!("{name}: `{function}` has {lines} lines, at most {FUNCTION_LINES_MAX}"));
        }
    }
    findings
}

fn leftover_findings(name: &str, text: &str) -> Vec<String> {
    let code = code_of(text);
    let found =
        LEFTOVERS.iter().flat_map(|leftover| word_starts(&code, leftover).map(move |at| (leftover, at)));
    found.map(|(leftover, at)| format!("{name}:{}: {leftover}", line_of(&code, at))).collect()
}

/// Errors that the code never meets.
fn unused_error_findings(codes: &[&str], code_of_src: &str) -> Vec<String> {
    let is_unused = |code: &&&str| word_starts(code_of_src, &format!("Code::{code}")).next().is_none();
    codes.iter().filter(is_unused).map(|code| format!("Code::{code} is met nowhere")).collect()
}

fn machine_findings(name: &str, text: &str) -> Vec<String> {
    let mut findings = Vec::new();
    for (line, content) in (1..).zip(text.lines()) {
        // A directory in the middle of a path or of an address is not one of the machine.
        let is_absolute = |at: usize| {
            let before = content[..at].chars().next_back();
            !before.is_some_and(|c| is_word(c) || "./-}*~%".contains(c))
        };
        let paths =
            MACHINE_PATHS.iter().filter(|path| content.match_indices(**path).any(|(at, _)| is_absolute(at)));
        let hosts = REGISTRIES.iter().filter(|host| content.contains(**host));
        findings.extend(paths.chain(hosts).map(|found| format!("{name}:{line}: {found}")));
        let is_cargo_source = name.ends_with("Cargo.lock") && content.starts_with("source = ");
        if is_cargo_source && !content.contains(&format!("\"{CARGO_SOURCE}\"")) {
            findings.push(format!("{name}:{line}: not the public registry"));
        }
    }
    findings
}

/// Files of `src` that no `mod` leads to.
fn unreached_findings(files: &[Source]) -> Vec<String> {
    let mut findings = Vec::new();
    for file in files.iter().filter(|file| !["src/lib.rs", "src/main.rs"].contains(&file.name.as_str())) {
        let path = Path::new(&file.name);
        let directory = path.parent().expect("a file lies in a directory");
        let stem = path.file_stem().expect("a file has a name").to_string_lossy();
        // `a/b/mod.rs` is declared like `a/b.rs`: by `a/mod.rs` or `a.rs`.
        let is_mod = stem == "mod";
        let module = if is_mod { directory.file_name().expect("a module").to_string_lossy() } else { stem };
        let parent = if is_mod { directory.parent().expect("below src") } else { directory };
        let root = Path::new("src");
        let parents = if parent == root {
            [root.join("lib.rs"), root.join("main.rs")]
        } else {
            [parent.join("mod.rs"), parent.with_extension("rs")]
        };
        let declares = |text: &str| word_starts(&code_of(text), &format!("mod {module};")).next().is_some();
        let declared = files
            .iter()
            .any(|file| parents.iter().any(|parent| parent == Path::new(&file.name)) && declares(&file.text));
        if !declared {
            findings.push(format!("{}: no `mod {module};` leads to it", file.name));
        }
    }
    findings
}

fn assert_none(findings: impl IntoIterator<Item = String>) {
    let findings: Vec<String> = findings.into_iter().collect();
    assert!(findings.is_empty(), "\n{}\n", findings.join("\n"));
}

// --- the repository

#[test]
fn layers_point_down_only() {
    let files = rust_sources().into_iter().filter(|file| file.name.starts_with("src/"));
    assert_none(files.flat_map(|file| layer_findings(&file.name, &file.text)));
}

#[test]
fn files_stay_short() {
    assert_none(
        production_sources().iter().flat_map(|file| file_length_findings(&file.name, &file.text, LONG_FILES)),
    );
}

#[test]
fn functions_stay_short() {
    let files = production_sources();
    assert_none(
        files.iter().flat_map(|file| function_length_findings(&file.name, &file.text, LONG_FUNCTIONS)),
    );
}

#[test]
fn nothing_is_left_behind() {
    assert_none(rust_sources().iter().flat_map(|file| leftover_findings(&file.name, &file.text)));
}

#[test]
fn every_error_is_met_somewhere() {
    let names: Vec<String> = Code::ALL.iter().map(|code| format!("{code:?}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let files = production_sources();
    let others = files.iter().filter(|file| file.name != "src/protocol/errors.rs");
    let code: String = others.map(|file| without_tests(&code_of(&file.text))).collect();
    assert_none(unused_error_findings(&names, &code));
}

#[test]
fn nothing_names_a_machine_or_a_registry() {
    assert_none(sources().iter().flat_map(|file| machine_findings(&file.name, &file.text)));
}

#[test]
fn every_file_is_part_of_the_crate() {
    let files: Vec<Source> =
        rust_sources().into_iter().filter(|file| file.name.starts_with("src/")).collect();
    assert_none(unreached_findings(&files));
}

// --- the checks themselves

#[test]
fn the_layers_are_in_order() {
    // Each layer names only layers above it in the table, so the rule has no cycle.
    for (index, (layer, allowed)) in LAYERS.iter().enumerate() {
        for module in *allowed {
            assert!(LAYERS[..index].iter().any(|(lower, _)| lower == module), "{layer} over {module}");
        }
    }
}

#[test]
fn code_is_told_from_text() {
    let text = "a // b\n/* c /* d */ e */ f \"g\\\" h\" i 'j' '\\'' 'k: r#\"l\" m\"# br\"n\" o";
    let words: Vec<String> = code_of(text).split_whitespace().map(String::from).collect();
    assert_eq!(words, ["a", "f", "i", "'k:", "b", "o"], "the last b is a byte string's prefix");
    assert_eq!(code_of("\"one\ntwo\" /* three\n */").matches('\n').count(), 2, "lines stay");
    assert_eq!(code_of("é 'é' \"ü\" x").split_whitespace().collect::<Vec<_>>(), ["é", "x"]);
}

#[test]
fn a_wrong_layer_is_found() {
    let found = |name: &str, text: &str| layer_findings(name, text).len();
    assert_eq!(found("src/storage/log.rs", "use crate::shard::table::Table;"), 1);
    assert_eq!(found("src/storage/log.rs", "use crate::{limits, node::x};"), 1);
    assert_eq!(found("src/storage/log.rs", "use crate::{limits::{node, A}, storage::event};"), 0);
    assert_eq!(found("src/storage/log.rs", "fn f() { crate::api::read(); }"), 1, "paths in code count");
    assert_eq!(found("src/api/mod.rs", "use super::node;"), 1);
    assert_eq!(found("src/api/read.rs", "use crate::{http, shard, storage, protocol, limits};"), 0);
    assert_eq!(found("src/http/head.rs", "use crate::protocol::errors::Problem;"), 0);
    assert_eq!(found("src/http/head.rs", "use crate::shard::stream::Stream;"), 1, "http knows no streams");
    assert_eq!(found("src/shard/mod.rs", "use crate::http::response;"), 1, "beside it, not below");
    assert_eq!(found("src/protocol/json.rs", "use crate::limits::JSON_DEPTH_MAX;"), 0);
    assert_eq!(found("src/limits.rs", "use crate::protocol::x;"), 1);
    assert_eq!(found("src/main.rs", "fn main() { thalweg::node::start() }"), 1);
    assert_eq!(
        found("src/storage/log.rs", "// crate::node\nconst A: &str = \"crate::node\";"),
        0,
        "text is not code"
    );
    assert_eq!(found("src/newcomer/mod.rs", ""), 1, "a new layer needs a place");
}

#[test]
fn a_long_file_is_found() {
    let found = |lines: usize, tests: usize, listed: &[&str]| {
        let tests = format!("#[cfg(test)]\nmod tests {{\n{}}}\n", "// a\n".repeat(tests));
        file_length_findings("src/a.rs", &("const A: &str = \"{\";\n".repeat(lines - 1) + &tests), listed)
            .len()
    };
    assert_eq!(found(FILE_LINES_MAX, 0, &[]), 1);
    assert_eq!(found(FILE_LINES_MAX - 2, 500, &[]), 0, "tests do not count");
    assert_eq!(found(FILE_LINES_MAX + 1, 0, &["src/a.rs"]), 0);
    assert_eq!(found(FILE_LINES_LIMIT + 1, 0, &["src/a.rs"]), 1);
    assert_eq!(found(10, 0, &["src/a.rs"]), 1, "an exception that is none");
}

#[test]
fn a_long_function_is_found() {
    let function =
        |lines: usize| format!("fn long(a: [u8; 2]) -> u8 {{\n{}}}\n", "    a();\n".repeat(lines - 2));
    let found = |text: &str, listed: &[&str]| function_length_findings("src/a.rs", text, listed).len();
    assert_eq!(found(&function(FUNCTION_LINES_MAX), &[]), 0);
    assert_eq!(found(&function(FUNCTION_LINES_MAX + 1), &[]), 1);
    assert_eq!(found(&function(FUNCTION_LINES_MAX + 1), &["src/a.rs: long"]), 0);
    assert_eq!(found(&format!("mod tests {{ {} }}", function(200)), &[]), 0, "tables of tests are long");
    assert_eq!(
        found(&format!("trait T {{ fn short();\n{} }}", function(200)), &[]),
        1,
        "a declaration has no body"
    );
    assert_eq!(found(&format!("type F = fn (u8);\n{}", "\n".repeat(200)), &[]), 0);
}

#[test]
fn a_leftover_is_found() {
    let found = |text: &str| leftover_findings("src/a.rs", text);
    assert_eq!(found("fn f() {\n    todo!(\"later\")\n}"), ["src/a.rs:2: todo!"]);
    assert_eq!(found("dbg!(a); unimplemented!()").len(), 2);
    assert_eq!(found("#[ignore]\n#[test]\nfn f() {}").len(), 1);
    assert_eq!(found("#[ignore = \"needs a second disk\"]").len(), 0);
    assert_eq!(found("// todo! \n let a = \"dbg!\"; my_todo!()").len(), 0);
}

#[test]
fn an_unused_error_is_found() {
    let found = unused_error_findings(&["Gone", "GoneFar"], "Problem::fixed(Code::GoneFar, message)");
    assert_eq!(found, ["Code::Gone is met nowhere"]);
}

#[test]
fn a_machine_and_a_registry_are_found() {
    let found = |name: &str, text: String| machine_findings(name, &text).len();
    let home = MACHINE_PATHS[2];
    assert_eq!(found("README.md", format!("cd {home}me/thalweg")), 1);
    assert_eq!(found("README.md", format!("dir=\"{home}me\"")), 1);
    assert_eq!(found("README.md", format!("curl localhost:4437/v1/stream{home}x and ./data{home}")), 0);
    assert_eq!(found("tests/package-lock.json", format!("https://{}.org/a", REGISTRIES[0])), 1);
    assert_eq!(found("Cargo.lock", "source = \"registry+https://mirror.example/index\"".to_string()), 1);
    assert_eq!(found("Cargo.lock", format!("source = \"{CARGO_SOURCE}\"")), 0);
}

#[test]
fn an_unreached_file_is_found() {
    let file = |name: &str, text: &str| Source { name: name.to_string(), text: text.to_string() };
    let files = [
        file("src/lib.rs", "pub mod a;\npub mod flat;\n// mod lost;"),
        file("src/a/mod.rs", "mod b;"),
        file("src/a/b.rs", "#[cfg(test)]\nmod tests;"),
        file("src/a/b/tests.rs", ""),
        file("src/flat.rs", ""),
        file("src/lost.rs", ""),
        file("src/a/stray.rs", ""),
    ];
    let findings = unreached_findings(&files);
    assert_eq!(
        findings,
        ["src/lost.rs: no `mod lost;` leads to it", "src/a/stray.rs: no `mod stray;` leads to it"]
    );
}
