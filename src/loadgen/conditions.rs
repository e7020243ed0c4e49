//! Where a run takes place: what a reader of its figures must know about the machine.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{SystemTime, UNIX_EPOCH};

use super::outcome::Conditions;
use super::plan::Plan;

/// The conditions of a run that starts now.
pub fn of(plan: &Plan) -> Conditions {
    let serde_json::Value::Object(options) = serde_json::to_value(&plan.load).expect("a load is plain data")
    else {
        unreachable!("a load is an object")
    };
    Conditions {
        command: plan.command.clone(),
        commit: commit(),
        thalweg: env!("CARGO_PKG_VERSION").to_owned(),
        machine: machine(),
        cores: std::thread::available_parallelism().map_or(1, usize::from).max(cores()),
        kernel: read_trimmed("/proc/sys/kernel/osrelease"),
        disk: disk(plan.server_pid),
        started_at: now(),
        target: plan.target.url(),
        style: plan.target.style.name().to_owned(),
        workload: plan.kind.name().to_owned(),
        seed: plan.seed,
        options: options.into_iter().collect(),
    }
}

fn read_trimmed(path: &str) -> String {
    fs::read_to_string(path).unwrap_or_default().trim().to_owned()
}

fn commit() -> String {
    let output = Command::new("git").args(["describe", "--always", "--dirty"]).stderr(Stdio::null()).output();
    match output {
        Ok(output) if output.status.success() => String::from_utf8_lossy(&output.stdout).trim().to_owned(),
        _ => String::new(),
    }
}

fn machine() -> String {
    let info = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model =
        info.lines().find(|line| line.starts_with("model name")).and_then(|line| line.split_once(':'));
    model.map_or(std::env::consts::ARCH, |(_, model)| model.trim()).to_owned()
}

fn cores() -> usize {
    let info = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    info.lines().filter(|line| line.starts_with("processor")).count()
}

fn now() -> String {
    let unix_s = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let mut text = Vec::new();
    crate::protocol::time::write_rfc3339(&mut text, unix_s * 1000);
    String::from_utf8_lossy(&text).replace(".000Z", "Z")
}

/// The file system that the server writes to: that of its largest open file; else that of the working directory.
fn disk(server_pid: Option<u32>) -> String {
    let place =
        server_pid.and_then(largest_open_file).or_else(|| std::env::current_dir().ok()).unwrap_or_default();
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    file_system(&place, &mounts).unwrap_or_default()
}

fn largest_open_file(pid: u32) -> Option<PathBuf> {
    let entries = fs::read_dir(format!("/proc/{pid}/fd")).ok()?;
    let files = entries.flatten().filter_map(|entry| {
        let length = fs::metadata(entry.path()).ok().filter(fs::Metadata::is_file)?.len();
        Some((length, fs::read_link(entry.path()).ok()?))
    });
    files.max_by_key(|(length, _)| *length).map(|(_, path)| path)
}

/// Type of the file system whose mount point is the longest that leads to `place`; of several mounted there, the last.
fn file_system(place: &Path, mounts: &str) -> Option<String> {
    let fields = |line: &str| {
        let mut fields = line.split_whitespace().skip(1);
        Some((fields.next()?.to_owned(), fields.next()?.to_owned()))
    };
    let leading = mounts.lines().filter_map(fields).filter(|(point, _)| place.starts_with(point));
    leading.max_by_key(|(point, _)| point.len()).map(|(_, kind)| kind)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_system_of_a_place_is_the_nearest_mount() {
        let mounts = "a / rootfs rw 0 0\nb /data ext4 rw 0 0\nc /data/x xfs rw 0 0\nd /da tmpfs rw 0 0\n";
        let table = [("/data/y/z", "ext4"), ("/data/x/y", "xfs"), ("/", "rootfs"), ("/datax", "rootfs")];
        for (place, kind) in table {
            assert_eq!(file_system(Path::new(place), mounts).as_deref(), Some(kind), "{place}");
        }
    }

    #[test]
    fn this_machine_has_a_name() {
        assert!(!machine().is_empty() && cores() > 0);
        let now = now();
        assert!(now.len() == 20 && now.ends_with('Z'), "{now}");
    }
}
