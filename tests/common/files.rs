//! Data directories from outside: copies, segment files, and what the offline tools say.

use std::path::{Path, PathBuf};
use std::process::Output;

use serde_json::Value;

use super::server::{DataDir, Server};

/// A copy of a data directory whose server has ended.
pub fn copy(from: &DataDir) -> DataDir {
    let to = DataDir::new();
    copy_directory(&from.path(), &to.path());
    to
}

fn copy_directory(from: &Path, to: &Path) {
    std::fs::create_dir(to).expect("a directory can be made");
    for entry in std::fs::read_dir(from).expect("a directory can be read") {
        let entry = entry.expect("a directory can be read");
        let target = to.join(entry.file_name());
        if entry.path().is_dir() {
            copy_directory(&entry.path(), &target);
        } else {
            std::fs::copy(entry.path(), target).expect("a file can be copied");
        }
    }
}

/// Every segment file below a directory, in the order of their names.
pub fn segments(dir: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(dir).expect("a directory can be read") {
        let path = entry.expect("a directory can be read").path();
        if path.is_dir() {
            found.extend(segments(&path));
        } else if path.extension().is_some_and(|extension| extension == "log") {
            found.push(path);
        }
    }
    found.sort();
    found
}

/// Likewise, while a server makes and removes files there.
pub fn try_segments(dir: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            found.extend(try_segments(&path));
        } else if path.extension().is_some_and(|extension| extension == "log") {
            found.push(path);
        }
    }
    found
}

/// Changes a file's bytes.
pub fn edit(path: &Path, change: impl FnOnce(&mut Vec<u8>)) {
    let mut bytes = std::fs::read(path).expect("a file can be read");
    change(&mut bytes);
    std::fs::write(path, bytes).expect("a file can be written");
}

/// Runs an offline subcommand.
pub fn tool(arguments: &[&str], dir: &Path) -> Output {
    Server::command().args(arguments).arg(dir).output().expect("the binary under test can be run")
}

/// The rows of `thalweg inspect --json`.
#[track_caller]
pub fn inspect(dir: &Path, more: &[&str]) -> Vec<Value> {
    let output = tool(&[&["inspect", "--json"], more].concat(), dir);
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8(output.stdout).expect("rows are text");
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}")))
        .collect()
}

/// Rows of one kind.
pub fn rows<'a>(rows: &'a [Value], kind: &str) -> Vec<&'a Value> {
    rows.iter().filter(|row| row["row"] == kind).collect()
}
